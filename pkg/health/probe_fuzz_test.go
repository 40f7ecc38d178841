package health

import (
	"runtime"
	"slices"
	"strings"
	"testing"
)

// allocated returns the number of bytes that the process allocates while f runs.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func FuzzParseProbe(f *testing.F) {
	f.Fuzz(func(t *testing.T, text string) {
		var p Probe
		var err error
		took := allocated(func() { p, err = ParseProbe(text) })
		if most := uint64(64<<10 + 128*len(text)); took > most {
			t.Errorf("%d bytes make %d, and %d is the most", len(text), took, most)
		}
		if err != nil {
			if p.tryOnce != nil || p.String() != "" || !strings.HasPrefix(err.Error(), "cannot read probe ") {
				t.Errorf("%v with the error %v", p, err)
			}
			return
		}
		if p.tryOnce == nil || p.String() != text || p.port < 0 || p.port > 65535 {
			t.Errorf("%q is taken for %+v", text, p)
		}
		kind, _, _ := strings.Cut(text, ":")
		if asks := slices.Contains([]string{"tcp", "http", "https"}, kind); asks != (p.port != 0) {
			t.Errorf("%q asks port %d", text, p.port)
		}
		if strings.ContainsAny(p.host, "/ ?#@") {
			t.Errorf("%q asks the host %q", text, p.host)
		}
	})
}
