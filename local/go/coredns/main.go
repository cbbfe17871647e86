// CoreDNS with only the plugins that the local cluster's Corefile names.
package main

import (
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/forward"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"

	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
)

// Plugins run in this order. The order in the Corefile has no effect.
func init() {
	dnsserver.Directives = []string{
		"errors", "health", "ready", "cache", "kubernetes", "forward",
	}
}

func main() {
	coremain.Run()
}
