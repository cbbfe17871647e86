// One binary for all Kubernetes servers, etcd and kubectl.
//
// The name of the called file selects the program, or else the first argument.
// The programs share most of their code: seven binaries would need five times
// the space, and five times the build time.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// server turns a constructor of one of Kubernetes' servers into a program.
func server(command func() *cobra.Command) func() {
	return func() { os.Exit(cli.Run(command())) }
}

var programs = map[string]func(){
	"kube-apiserver":          server(apiserver.NewAPIServerCommand),
	"kube-controller-manager": server(controllermanager.NewControllerManagerCommand),
	"kube-scheduler":          server(func() *cobra.Command { return scheduler.NewSchedulerCommand() }),
	"kube-proxy":              server(proxy.NewProxyCommand),
	"kubelet": server(func() *cobra.Command {
		return kubelet.NewKubeletCommand(context.Background())
	}),
	"kubectl": func() {
		if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
			kubectlutil.CheckErr(err)
		}
	},
	"etcd": func() { etcdmain.Main(os.Args) },
}

func main() {
	name := filepath.Base(os.Args[0])
	program, known := programs[name]
	if !known && len(os.Args) > 1 {
		name = os.Args[1]
		program, known = programs[name]
		os.Args = os.Args[1:]
	}
	if !known {
		names := make([]string, 0, len(programs))
		for name := range programs {
			names = append(names, name)
		}
		sort.Strings(names)
		fmt.Fprintf(os.Stderr, "%s: is not a program of this binary; start it as one of %s\n", name, strings.Join(names, ", "))
		os.Exit(64)
	}
	program()
}
