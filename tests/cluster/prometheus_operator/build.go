//go:build tools

// Package build pins the version of the Prometheus Operator that a test runs for a cluster.
package build

import _ "github.com/prometheus-operator/prometheus-operator/cmd/operator"
