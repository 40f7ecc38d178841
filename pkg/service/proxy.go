package service

import (
	"net"
	"slices"
	"strings"

	"github.com/bringupd/bringupd/internal/envlist"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

// proxyVariables name a proxy for HTTP. Most programs read only those in lower case.
var proxyVariables = []string{
	"http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY",
}

// maxProxyExceptions is the maximum length of a list of hosts that no proxy serves, in bytes. The
// kernel limits a variable to 128 KiB, and every process of the job has a copy of each.
const maxProxyExceptions = 32 << 10

// BypassProxy returns environ with the loopback addresses and the given hosts, names or addresses
// with or without a port, added to no_proxy and NO_PROXY, if environ names a proxy: it would refuse
// or fail to reach what listens on the job's own nodes. Hosts beyond maxProxyExceptions are left
// out.
func BypassProxy(environ []string, hosts ...string) []string {
	lookup := launcher.EnvironmentOf(environ)
	isSet := func(name string) bool { value, _ := lookup(name); return value != "" }
	if !slices.ContainsFunc(proxyVariables, isSet) {
		return environ
	}
	lower, _ := lookup("no_proxy")
	upper, _ := lookup("NO_PROXY")
	if lower == "" {
		lower = upper
	}
	if upper == "" {
		upper = lower
	}
	hosts = append([]string{"localhost", "127.0.0.1"}, hosts...)
	return envlist.With(environ, map[string]string{
		"no_proxy": addExceptions(lower, hosts), "NO_PROXY": addExceptions(upper, hosts),
	})
}

// addExceptions adds hosts to a list of hosts that no proxy serves.
func addExceptions(list string, hosts []string) string {
	entries := strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
	if slices.Contains(entries, "*") {
		return list
	}
	listed, size := make(map[string]bool), len(list)
	for _, entry := range entries {
		listed[entry] = true
	}
	for _, host := range hosts {
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		if host == "" || listed[host] || size+len(host) > maxProxyExceptions {
			continue
		}
		listed[host] = true
		entries, size = append(entries, host), size+len(host)+1
	}
	return strings.Join(entries, ",")
}
