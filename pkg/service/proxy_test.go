package service

import (
	"strings"
	"testing"

	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

// TestBypassProxy verifies which hosts are added to the variables that exclude hosts from a proxy.
func TestBypassProxy(t *testing.T) {
	hosts := []string{"n0", "10.0.0.7:6379", "", "n1", "n0"}
	const added = "localhost,127.0.0.1,n0,10.0.0.7,n1"
	for _, tc := range []struct{ name, base, lower, upper string }{
		{"no proxy", "no_proxy=.site", ".site", ""},
		{"an empty proxy", "http_proxy=", "", ""},
		{"a proxy", "http_proxy=http://p:3128", added, added},
		{"in upper case", "HTTPS_PROXY=http://p:3128", added, added},
		{"one list", "all_proxy=socks5://p no_proxy=.site,n1",
			".site,n1,localhost,127.0.0.1,n0,10.0.0.7", ".site,n1,localhost,127.0.0.1,n0,10.0.0.7"},
		{"two lists", "http_proxy=p no_proxy=a NO_PROXY=b", "a," + added, "b," + added},
		{"all hosts", "http_proxy=p NO_PROXY=*", "*", "*"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			lookup := launcher.EnvironmentOf(BypassProxy(strings.Fields(tc.base), hosts...))
			lower, _ := lookup("no_proxy")
			upper, _ := lookup("NO_PROXY")
			if lower != tc.lower || upper != tc.upper {
				t.Errorf("no_proxy is %q and NO_PROXY %q, want %q and %q", lower, upper, tc.lower, tc.upper)
			}
		})
	}
}
