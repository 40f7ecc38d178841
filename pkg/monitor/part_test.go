package monitor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/check"
)

// heading is the first line of /proc/net/tcp, and of no socket.
const heading = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"

// socket is a line of /proc/net/tcp or tcp6.
func socket(address string, port int, state string, uid int) string {
	return fmt.Sprintf("   1: %s:%04X 00000000:0000 %s 00000000:00000000 00:00000000 00000000 %5d        0 8507832 2 00000000f2632146 100 0 0 10 0\n", address, port, state, uid)
}

// machine is a root with these sockets.
func machine(t *testing.T, tcp, tcp6 string) (root string) {
	t.Helper()
	root = t.TempDir()
	put(t, filepath.Join(root, "proc/net/tcp"), heading+tcp, 0o644)
	put(t, filepath.Join(root, "proc/net/tcp6"), heading+tcp6, 0o644)
	return root
}

func put(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), mode)); err != nil {
		t.Fatal(err)
	}
}

// said is what findings say, each of which must have what people need.
func said(t *testing.T, found []check.Finding) (all []string) {
	t.Helper()
	for _, f := range found {
		wrong := !f.Quiet()
		if f.ID == "" || f.Source == "" || wrong != (f.Hint != "") || wrong != (f.Class == check.Node) || wrong != f.Strict {
			t.Errorf("%+v lacks something", f)
		}
		all = append(all, strings.TrimSuffix(fmt.Sprintf("%s %s: %s", f.Verdict, f.Observed, f.Hint), ": "))
	}
	return all
}

// Anybody may listen on a port: only root is believed, and nobody else is asked.
func TestWhoListens(t *testing.T) {
	t.Parallel()
	const listens, connected = "0A", "01"
	const all6, mapped, only6 = "00000000000000000000000000000000", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"
	absent := "SKIP it is not there: nobody listens on port 15132"
	stranger := func(uid int) string {
		return fmt.Sprintf("SKIP who listens on port 15132, where it does, is the user %d and not root: not believed", uid)
	}
	for _, tc := range []struct{ name, tcp, tcp6, want string }{
		{"nobody", "", "", absent},
		{"root", socket("0100007F", 15132, listens, 0), "", "PASS all is well"},
		{"on all addresses", socket("00000000", 15132, listens, 0), "", "PASS all is well"},
		{"on all of IPv6", "", socket(all6, 15132, listens, 0), "PASS all is well"},
		{"on one that IPv6 has of IPv4", "", socket(mapped, 15132, listens, 0), "PASS all is well"},
		{"on IPv6 alone", "", socket(only6, 15132, listens, 0), absent},
		{"on a network card", socket("0200000A", 15132, listens, 0), "", absent},
		{"on another port", socket("0100007F", 15133, listens, 0), "", absent},
		{"a connection from that port", socket("0100007F", 15132, connected, 0), "", absent},
		{"a user", socket("0100007F", 15132, listens, 1000), "", stranger(1000)},
		{"a user beside root", socket("00000000", 15132, listens, 0), socket(mapped, 15132, listens, 1000), stranger(1000)},
		{"what the kernel never writes", "\n15132\n   1: : : : :\n", "0A 0A 0A 0A 0A 0A 0A 0A", absent},
	} {
		asked := false
		p := &Part{ID: "monitor.gpud", name: "it", port: gpudPort, root: machine(t, tc.tcp, tc.tcp6), ask: func(context.Context) (answer, error) {
			asked = true
			return answer{well: "all is well"}, nil
		}}
		if got := said(t, p.Look(t.Context(), nil)); len(got) != 1 || got[0] != tc.want || asked != strings.HasPrefix(tc.want, "PASS") {
			t.Errorf("%s: %q, asked: %t; want %q", tc.name, got, asked, tc.want)
		}
	}
	p := &Part{ID: "monitor.gpud", name: "it", port: gpudPort, root: t.TempDir()}
	if got := said(t, p.Look(t.Context(), nil)); len(got) != 1 || !strings.HasPrefix(got[0], "SKIP cannot see whether it is there: open ") {
		t.Errorf("without /proc: %q", got)
	}
	put(t, filepath.Join(p.root, "proc/net/tcp"), heading, 0o644)
	if got := said(t, p.Look(t.Context(), nil)); len(got) != 1 || got[0] != absent {
		t.Errorf("without IPv6: %q", got)
	}
}

func TestJudge(t *testing.T) {
	t.Parallel()
	var woes []woe
	for i := range 12 {
		woes = append(woes, woe{fmt.Sprintf("\x1b[31mGPU %d\nis %s", i, strings.Repeat("x", 300)), "see"})
	}
	for n, last := range map[int]string{8: "GPU 7", 9: "and 2 more, as \ufffd[31mGPU 7", 12: "and 5 more, as \ufffd[31mGPU 7"} {
		sheet := check.Sheet{Each: check.Finding{ID: "monitor.gpud", Source: "x"}}
		judge(&sheet, answer{woes: woes[:n]})
		got := said(t, sheet.Found)
		if len(got) != mostFindings || !strings.Contains(got[mostFindings-1], last) {
			t.Errorf("of %d: %q", n, got)
		}
		for _, f := range sheet.Found {
			if len([]rune(f.Observed)) > mostSaid || strings.ContainsAny(f.Observed, "\x1b\n") {
				t.Errorf("it says %q", f.Observed)
			}
		}
	}
}

// standing is a gpud that answers so, in the place of the real one, and the check that asks it.
func standing(t *testing.T, answers http.HandlerFunc) *Part {
	t.Helper()
	server := httptest.NewTLSServer(answers)
	t.Cleanup(server.Close)
	port := server.Listener.Addr().(*net.TCPAddr).Port
	return &Part{ID: "monitor.gpud", name: "gpud", port: port, root: machine(t, socket("0100007F", port, "0A", 0), ""),
		ask: func(ctx context.Context) (answer, error) { return askGpud(ctx, port) }}
}

// The answer in testdata is that of a real gpud 0.9.2 on a machine without GPUs, but for the machine's ids.
func TestGpud(t *testing.T) {
	t.Parallel()
	recorded, err := os.ReadFile("testdata/gpud-0.9.2.json")
	if err != nil {
		t.Fatal(err)
	}
	const see = "see what gpud says of it on the node"
	for _, tc := range []struct {
		name, body string
		want       []string
	}{
		{"the real one", string(recorded), []string{
			"WARN docker is unhealthy: docker installed but docker is not running: " + see,
			"WARN kernel-module is unhealthy: error getting all modules (failed to read \"/etc/modules\": open /etc/modules: no such file or directory): " + see,
		}},
		{"all are well", strings.ReplaceAll(string(recorded), "Unhealthy", "Healthy"), []string{"PASS 14 components are healthy"}},
		{"one has just begun", strings.ReplaceAll(string(recorded), "Unhealthy", "Initializing"), []string{"PASS 12 of 14 components are healthy, and nothing is known of the others yet"}},
		{"the worst first", `[
			{"component": "a", "states": [{"name": "a", "health": "Degraded", "reason": "slow"}]},
			{"component": "b", "states": [{"name": "x", "health": "Unhealthy", "error": "broken", "suggested_actions": {"repair_actions": ["REBOOT_SYSTEM", "HARDWARE_INSPECTION"]}}]},
			{"component": "c", "states": [{"health": "Healthy"}, {"health": "Degraded", "suggested_actions": {"repair_actions": ["IGNORE_NO_ACTION_REQUIRED"]}}]}]`,
			[]string{
				"WARN b (x) is unhealthy: broken: " + see + "; it suggests to reboot the node; it suggests to have the hardware inspected",
				"WARN a is degraded: slow: " + see, "WARN c is degraded: " + see,
			}},
		{"it has just begun", `[{"component": "a"}, {"component": "b", "states": [{"health": "Initializing"}]}]`, []string{"SKIP cannot tell by gpud: it knows nothing of its 2 components yet"}},
		{"it looks at nothing", `null`, []string{"SKIP cannot tell by gpud: it knows nothing of its 0 components yet"}},
		{"not gpud", `<html>`, []string{"SKIP cannot read gpud's states: invalid character '<' looking for beginning of value"}},
	} {
		p := standing(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodGet || r.URL.Path != "/v1/states" {
				t.Errorf("it is asked %s %s", r.Method, r.URL)
			}
			_, _ = w.Write([]byte(tc.body))
		})
		if got := said(t, p.Look(t.Context(), nil)); !slices.Equal(got, tc.want) {
			t.Errorf("%s:\n%s\nwant\n%s", tc.name, strings.Join(got, "\n"), strings.Join(tc.want, "\n"))
		}
	}
}

func TestGpudDoesNotAnswer(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		answers http.HandlerFunc
		want    string
	}{
		"refused": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }, "SKIP cannot ask gpud for its states: it answers 403 Forbidden"},
		"sent away": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://127.0.0.1:1/", http.StatusFound)
		}, "SKIP cannot ask gpud for its states: it answers 302 Found"},
		"never":       {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "SKIP cannot ask gpud: it has not answered within 2 s"},
		"without end": {endless, "SKIP cannot read gpud's states: "},
		"in the middle": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "9")
			_, _ = w.Write([]byte("["))
		}, "SKIP cannot read gpud's states: unexpected EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			if got := said(t, standing(t, tc.answers).Look(t.Context(), nil)); len(got) != 1 || !strings.HasPrefix(got[0], tc.want) {
				t.Errorf("%q, want %q", got, tc.want)
			}
			if took := time.Since(began); took > answerLimit+10*time.Second {
				t.Errorf("it takes %s", took)
			}
		})
	}
}

// endless writes as long as anybody reads.
func endless(w http.ResponseWriter, _ *http.Request) {
	for blanks := []byte(strings.Repeat(" ", 1<<16)); ; {
		if _, err := w.Write(blanks); err != nil {
			return
		}
	}
}

// TestDCGM has a script for dcgmi, which prints what dcgmi's source makes it print.
func TestDCGM(t *testing.T) {
	t.Parallel()
	woes, err := os.ReadFile("testdata/dcgmi.json")
	if err != nil {
		t.Fatal(err)
	}
	const see = ": see dcgmi health --check on the node, and test it: dcgmi diag -r 1"
	const printed = "cat <<'END'\n%s\nEND\n"
	for name, tc := range map[string]struct {
		script string // empty: there is no dcgmi
		want   []string
	}{
		"woes": {fmt.Sprintf(printed, woes), []string{
			"WARN GPU 5, NVLINK system: failure: Link 4 of GPU 5 is down." + see,
			"WARN GPU 0, Memory system: warning: Row remapping is pending for GPU 0. Drain the GPU and reset it." + see,
			"WARN GPU 5, PCIe system: warning: GPU 5 has replayed." + see,
		}},
		"all is well": {fmt.Sprintf(printed, `{"body" : {"Overall Health" : {"value" : "Healthy"}}, "header" : ["Health Monitor Report"]}`),
			[]string{"PASS its health watches have nothing to tell"}},
		"no more is known": {fmt.Sprintf(printed, `{"body" : {"Overall Health" : {"value" : "Failure"}}}`), []string{"WARN all GPUs, overall health: failure" + see}},
		"no watches": {"echo 'Error: Health watches not enabled. Please enable watches. '; exit 253",
			[]string{"SKIP cannot tell by DCGM: Health watches not enabled. Please enable watches."}},
		"another form":     {fmt.Sprintf(printed, `{"DCGM": []}`), []string{"SKIP cannot read what dcgmi says of DCGM's health watches: it tells of no overall health"}},
		"no JSON":          {"echo Healthy", []string{"SKIP cannot read what dcgmi says of DCGM's health watches: invalid character 'H' looking for beginning of value"}},
		"it can't begin":   {"echo 'no libdcgm.so.4' >&2; exit 127", []string{"SKIP cannot tell by DCGM: no libdcgm.so.4"}},
		"it hangs":         {"sleep 1000", []string{"SKIP cannot ask DCGM's host engine: it has not answered within 2 s"}},
		"there is none":    {"", []string{"SKIP cannot ask DCGM's host engine: there is no ROOT/usr/bin/dcgmi"}},
		"how it is called": {"echo \"$*; HOME=$HOME\"; exit 1", []string{"SKIP cannot tell by DCGM: health --check --json --group 0 --host 127.0.0.1; HOME="}},
	} {
		t.Run(name, func(t *testing.T) {
			p := Parts(machine(t, socket("0100007F", dcgmPort, "0A", 0), ""))[1]
			if tc.script != "" {
				put(t, filepath.Join(p.root, "usr/bin/dcgmi"), "#!/bin/sh\n"+tc.script, 0o755)
			}
			t.Parallel() // from here on programs are started, which must not have a script open that is still written
			var got []string
			for _, line := range said(t, p.Look(t.Context(), nil)) {
				got = append(got, strings.ReplaceAll(line, p.root, "ROOT"))
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("%q, want\n%q", got, tc.want)
			}
		})
	}
}
