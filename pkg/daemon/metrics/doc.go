// Package metrics exports a daemon's metrics to Prometheus: by a file for the textfile collector of
// node-exporter, and by HTTP at a loopback address. It implements the format, and does not depend
// on the metrics themselves.
//
// The package does not use Prometheus' client library, which would add ten modules and some
// megabytes to replace thirty lines.
package metrics
