//go:build tools

// Package build holds the version of the Prometheus Operator that a test runs beside a cluster.
package build

import _ "github.com/prometheus-operator/prometheus-operator/cmd/operator"
