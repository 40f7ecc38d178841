package launch

import (
	"bytes"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/health"
)

// TestTether sends an order and signals through a pipe and reads the answers.
func TestTether(t *testing.T) {
	var stderr bytes.Buffer
	order := DaemonSpec{Program: "v1", Args: []string{"--x=a 'b' \"c\"\n$d", ""}, Dir: "/",
		Env: []string{"A=b\nc"}, Mark: "mark 7"}
	tether, err := NewSSHSession(order, &stderr)
	if err != nil {
		t.Fatal(err)
	}
	got, err := ReadDaemonSpec(tether.Stdin, tether)
	if err != nil || got.Args[0] != order.Args[0] || got.Env[0] != order.Env[0] || len(got.Args) != 2 {
		t.Fatalf("got %+v, %v", got, err)
	}
	own := make(chan os.Signal)
	signals := got.MergeSignals(own)
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGUSR1} {
		tether.SendSignal(sig)
		if got := next(t, signals); got != sig {
			t.Errorf("got %v, not %v", got, sig)
		}
	}
	tether.SendFailure("cannot reach b:\nno way")
	if got := next(t, signals); got != health.LaunchFailureSignal("cannot reach b: no way") {
		t.Errorf("got %v", got)
	}
	if tether.HasStarted() {
		t.Error("it has begun before it said so")
	}
	for _, piece := range []string{"mar", "k my words\nma", "rk 7 beg", "un\nmark 7\n", "no end"} {
		if _, err := tether.Write([]byte(piece)); err != nil {
			t.Fatal(err)
		}
	}
	got.ReportExit(3)
	if !tether.HasStarted() || tether.HasExited255() || stderr.String() != "mark my words\nmark 7\nno end" {
		t.Errorf("begun: %v; passed on: %q", tether.HasStarted(), stderr.String())
	}
	got.ReportExit(255)
	if !tether.HasExited255() {
		t.Error("255 is not known to be the daemon's")
	}
	tether.Close()
	if got := next(t, signals); got != syscall.SIGTERM {
		t.Errorf("the end of the connection is %v", got)
	}
	close(own)
}

func next(t *testing.T, signals <-chan os.Signal) os.Signal {
	t.Helper()
	select {
	case sig := <-signals:
		return sig
	case <-time.After(10 * time.Second):
		t.Fatal("no signal has come")
		return nil
	}
}

func TestReadHosts(t *testing.T) {
	for _, tc := range []struct {
		name, text, want, err string
		slots                 bool
	}{
		{name: "plain", text: "a\n\n# all\nme@b # mine\nn[1-2]\n", want: "a me@b n1 n2"},
		{name: "of an mpirun", text: "a slots=8 max_slots=9\nb slots=8\n", want: "a b", slots: true},
		{name: "twice", text: "a\nb\nme@a\n", err: "cannot use F:3: a is listed twice, and each host has one daemon"},
		{name: "two on a line", text: "a b\n",
			err: `cannot use F:1: "b" is neither a comment nor slots=N: give one host per line`},
		{name: "an option for ssh", text: "-oProxyCommand=x\n",
			err: `cannot use F:1: cannot read node list "-oProxyCommand=x"`},
		{name: "an option for ssh as the user", text: "-x@a\n", err: `cannot use F:1: "-x" is not a user`},
		{name: "a count", text: "a:4\n", err: `cannot use F:1: cannot read node list "a:4"`},
		{name: "empty", text: "# nobody\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, slots, err := ReadHosts("F", tc.text)
			if tc.err != "" {
				if err == nil || !strings.HasPrefix(err.Error(), tc.err) {
					t.Errorf("got %v, not %s", err, tc.err)
				}
				return
			}
			if err != nil || strings.Join(got, " ") != tc.want || slots != tc.slots {
				t.Errorf("got %q, %v, %v", got, slots, err)
			}
		})
	}
}
