// Package metrics shows a daemon to Prometheus: as a file for the collector of
// text files of node-exporter, and at an address of this machine alone. It
// knows how metrics are told, and nothing of what they are.
//
// The exposition is written here: the client library would bring ten modules
// and some megabytes for what is thirty lines.
package metrics
