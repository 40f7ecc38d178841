package launcher

import (
	"net/netip"
	"strings"
	"testing"
)

// FuzzLocalAddress determines an address in an environment that names any interface and launching
// host. No resolver is used.
func FuzzLocalAddress(f *testing.F) {
	f.Fuzz(func(t *testing.T, launch, ifname string, size uint8) {
		if _, err := netip.ParseAddr(launch); err != nil {
			launch = ""
		}
		id := Identity{Launcher: LauncherSlurm, Size: int(size) + 1, LaunchAddress: launch}
		addr, err := AddressFinder(id, ifname)()
		checkChosen(t, parsedAddress(addr), err, size == 0)
	})
}

// FuzzChooseAddress chooses among interfaces described by any text: one line each, with the name
// and the addresses; "!" means that it is down and "*" that it is a loopback interface.
func FuzzChooseAddress(f *testing.F) {
	f.Fuzz(func(t *testing.T, text, sources, ifname string, loopback bool) {
		var found []netInterface
		for line := range strings.Lines(text) {
			fields := strings.Fields(line)
			if len(fields) > 0 {
				name := strings.TrimRight(fields[0], "!*")
				flags := fields[0][len(name):]
				found = append(found, netInterface{
					name: name, up: !strings.Contains(flags, "!"),
					loopback: strings.Contains(flags, "*"), addrs: parsed(fields[1:]),
				})
			}
		}
		selected, err := selectedAddress(found, ifname, loopback)
		checkChosen(t, parsedAddress(selected), err, loopback)
		addr, err := routedAddress(found, parsed(strings.Fields(sources)), loopback)
		checkChosen(t, addr, err, loopback)
	})
}

func parsed(texts []string) (all []netip.Addr) {
	for _, text := range texts {
		if addr, err := netip.ParseAddr(text); err == nil {
			all = append(all, addr)
		}
	}
	return all
}

// checkChosen verifies that peers can reach the chosen address.
func checkChosen(t *testing.T, addr netip.Addr, err error, loopback bool) {
	t.Helper()
	switch {
	case err != nil:
		if addr.IsValid() || !strings.HasPrefix(err.Error(), "cannot ") {
			t.Errorf("got %v with the error %v", addr, err)
		}
	case !addr.IsValid() || addr.IsUnspecified() || addr.IsMulticast() || addr.IsLoopback() &&
		!loopback || addr.Is6() && addr.IsLinkLocalUnicast():
		t.Errorf("no peer reaches %v", addr)
	}
}
