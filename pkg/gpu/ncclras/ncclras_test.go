package ncclras

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/test/users"
)

// worldRank is the rank in the world of the processes of testdata, whose pids begin with 4000.
func worldRank(m Member) int {
	if m.PID < 4000 {
		return -1
	}
	return 10 + m.PID - 4000
}

func TestSummarize(t *testing.T) {
	for file, want := range map[string]string{
		"healthy.json": "communicators, by NCCL 2.30.7 on n1: 2; no rank is missing in any, and " +
			"all ranks have started the same collectives\n",
		"incomplete.json": "communicators, by NCCL 2.28.9 on n1: 1\n" +
			"    communicator 0xcf264af53edbe986 of 4 ranks lacks rank 3: NCCL considers it " +
			"dead (rank 13 of the world)\n" +
			"    communicator 0xcf264af53edbe986 of 4 ranks lacks rank 1: no response (rank 11 of the world)\n",
		"hung.json": "communicators, by NCCL 2.29.2 on n1: 2\n" +
			"    communicator 0x27a079b828ff1a75 of 2 ranks: rank 0: still initialising (rank 12 of the world)\n" +
			"    communicator 0xae94423cfbb2ef4a of 4 ranks: rank 2: started 6,649 of the 6,650 " +
			"AllReduce that others have started (rank 12 of the world)\n",
	} {
		data, err := os.ReadFile("testdata/" + file)
		if err != nil {
			t.Fatal(err)
		}
		report, err := ParseReport(data)
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		summary := report.Summarize()
		summary.Host = "n1"
		text := summary.FormatText(worldRank)
		if text != want {
			t.Errorf("%s is\n%swant\n%s", file, text, want)
		}
	}
}

// TestFindings verifies what counts as a finding.
func TestFindings(t *testing.T) {
	rank := func(number int, change func(*Rank)) Rank {
		r := Rank{Member: Member{Rank: number, Host: "10.0.0.1", PID: -1}, Counts: map[string]uint64{"AllReduce": 5}}
		if change != nil {
			change(&r)
		}
		return r
	}
	leaving := func(r *Rank) { r.Status.Finalize = true }
	for _, tc := range []struct {
		name  string
		ranks []Rank
		want  []string
	}{
		{"healthy", []Rank{rank(0, nil), rank(1, nil)}, nil},
		{"all leave", []Rank{rank(0, leaving), rank(1, leaving)}, nil},
		{"one leaves", []Rank{rank(0, leaving), rank(1, nil)},
			[]string{"leaving [0] finalising the communicator, which others still use"}},
		{"errors", []Rank{rank(0, func(r *Rank) { r.Status.AsyncError = 6 }),
			rank(1, func(r *Rank) { r.Status.InitState = 3 }), rank(2, func(r *Rank) { r.Status.Abort = true })},
			[]string{"error [2] aborted", "error [0] an error of another rank's process",
				"error [1] initialisation has failed: an internal error"}},
		{"behind", []Rank{rank(3, func(r *Rank) { r.Counts["AllReduce"] = 4 }),
			rank(1, func(r *Rank) { r.Counts["AllReduce"] = 4 }), rank(0, nil)},
			[]string{"behind [1 3] started 4 of the 5 AllReduce that others have started"}},
		{"in progress is no error", []Rank{rank(0, func(r *Rank) { r.Status.AsyncError = 7 }), rank(1, nil)}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			for _, f := range (Report{Communicators: []Communicator{{Hash: "0x1", Size: 2,
				Ranks: tc.ranks}}}).Summarize().Findings {
				got = append(got, fmt.Sprint(f.Kind, " ", f.Ranks, " ", f.Text))
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("it finds %q, want %q", got, tc.want)
			}
		})
	}
}

func TestParseReport(t *testing.T) {
	r, err := ParseReport([]byte(`{"rccl_version": "2.28.9", "communicators": []}`))
	if err != nil || r.Version() != "RCCL 2.28.9" {
		t.Errorf("RCCL's answer is %+v, %v", r, err)
	}
	for _, text := range []string{"", "NCCL version 2.27.3 compiled with CUDA 12.4\n", `{"communicators": [`} {
		if _, err := ParseReport([]byte(text)); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

func FuzzParseReport(f *testing.F) {
	for _, file := range []string{"healthy.json", "incomplete.json", "hung.json"} {
		data, err := os.ReadFile("testdata/" + file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		report, err := ParseReport(data)
		if err != nil {
			return
		}
		summary := report.Summarize()
		if text := summary.FormatText(worldRank); !strings.HasSuffix(text, "\n") || strings.ContainsRune(text, '\x1b') {
			t.Errorf("the text is %q", text)
		}
	})
}

// listen starts a server that answers as a version of NCCL does, and returns its address and the
// lines that it has read from each client.
func listen(t *testing.T, address string, answers map[string]string) (string, chan string) {
	t.Helper()
	config := net.ListenConfig{Control: func(_, _ string, conn syscall.RawConn) error {
		var failed error
		err := conn.Control(func(fd uintptr) {
			failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET,
				unix.SO_REUSEPORT, 1)
		})
		return errors.Join(err, failed)
	}}
	listener, err := config.Listen(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	requests := make(chan string, 100)
	go func() {
		defer close(requests)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			requests <- "connection"
			for lines := bufio.NewScanner(conn); lines.Scan(); {
				requests <- lines.Text()
				_, _ = io.WriteString(conn, answers[lines.Text()])
				if lines.Text() == "STATUS" {
					break
				}
			}
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		for range requests { // until the server has ended
		}
	})
	return listener.Addr().String(), requests
}

func received(requests chan string) (lines []string) {
	for {
		select {
		case line := <-requests:
			lines = append(lines, line)
		default:
			return lines
		}
	}
}

func TestAsk(t *testing.T) {
	hung, err := os.ReadFile("testdata/hung.json")
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		client, format string // the answers
		requests       int
		err            string
	}{
		"NCCL":                   {"SERVER PROTOCOL 2\n", "OK\n", 3, ""},
		"a version without JSON": {"SERVER PROTOCOL 2\n", "ERROR: Unknown command\n", 2, ErrNoJSON.Error()},
		"another program":        {"220 mail.example.org\n", "", 1, "this is not NCCL"},
		"a stopped process":      {"", "", 1, "the time is over"},
	} {
		address, requests := listen(t, "127.0.0.1:0", map[string]string{
			"CLIENT PROTOCOL 2": tc.client, "SET FORMAT json": tc.format, "STATUS": string(hung),
		})
		ctx := t.Context()
		if tc.client == "" {
			limited, cancel := context.WithTimeoutCause(ctx, 50*time.Millisecond, errors.New("the time is over"))
			defer cancel()
			ctx = limited
		}
		report, err := Ask(ctx, address)
		if (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) ||
			err == nil && len(report.Communicators) != 2 {
			t.Errorf("%s: the answer is %+v, %v", name, report, err)
		}
		all := []string{"connection", "CLIENT PROTOCOL 2", "SET FORMAT json", "STATUS"}
		if got := received(requests); tc.client != "" && !slices.Equal(got, all[:1+tc.requests]) {
			t.Errorf("%s: the requests are %q", name, got)
		}
	}
}

// TestDefaultPort verifies that the port that any job may have is never asked, nor any other machine.
func TestDefaultPort(t *testing.T) {
	_, requests := listen(t, "127.0.0.1:28028", nil)
	for _, address := range []string{"127.0.0.1:28028", "[::1]:28028", "localhost:28028", "",
		"10.0.0.1:4000", "127.0.0.1"} {
		if _, err := Ask(t.Context(), address); err == nil {
			t.Errorf("%q is asked", address)
		}
	}
	if got := received(requests); len(got) > 0 {
		t.Errorf("the default port has got %q", got)
	}
	variables := Variables("127.0.0.1:4000", func(name string) (string, bool) {
		value, isSet := map[string]string{AddressVariable: "localhost:28028"}[name]
		return value, isSet
	})
	if _, set := variables[AddressVariable]; set || variables[ReservedVariable] != "127.0.0.1:4000" {
		t.Errorf("a user's own address is replaced: %v", variables)
	}
}

func TestVariables(t *testing.T) {
	none := func(string) (string, bool) { return "", false }
	if got := Variables("127.0.0.1:4000", none); got[AddressVariable] != "127.0.0.1:4000" ||
		got[ReservedVariable] != "127.0.0.1:4000" {
		t.Errorf("they are %v", got)
	}
	outer := func(string) (string, bool) { return "127.0.0.1:5000", true }
	if got := Variables("127.0.0.1:4000", outer); got[AddressVariable] != "127.0.0.1:4000" {
		t.Errorf("in another run they are %v", got)
	}
}

// TestReservePort verifies that processes of this user can listen at a reserved port as NCCL does, and
// that those without SO_REUSEPORT cannot.
func TestReservePort(t *testing.T) {
	r, err := ReservePort()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	//nolint:noctx // it is refused at once
	if _, err := net.Dial("tcp", r.Address()); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("a port without a listener: %v", err)
	}
	at := netip.MustParseAddrPort(r.Address())
	for _, option := range []int{0, unix.SO_REUSEADDR} {
		socket, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		if option != 0 {
			err = unix.SetsockoptInt(socket, unix.SOL_SOCKET, option, 1)
		}
		bound := unix.Bind(socket, &unix.SockaddrInet4{Addr: at.Addr().As4(), Port: int(at.Port())})
		if err != nil || !errors.Is(bound, unix.EADDRINUSE) {
			t.Errorf("with option %d the port is not refused: %v, %v", option, err, bound)
		}
		_ = unix.Close(socket)
	}
	users.Need(t)
	for _, options := range [][]int{{}, {unix.SO_REUSEPORT}, {unix.SO_REUSEADDR},
		{unix.SO_REUSEADDR, unix.SO_REUSEPORT}} {
		users.Stranger.Do(t, func() {
			socket, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = unix.Close(socket) }()
			for _, option := range options {
				if err := unix.SetsockoptInt(socket, unix.SOL_SOCKET, option, 1); err != nil {
					t.Error(err)
				}
			}
			for _, host := range [][4]byte{{127, 0, 0, 1}, {}} {
				bound := unix.Bind(socket, &unix.SockaddrInet4{Addr: host, Port: int(at.Port())})
				if !errors.Is(bound, unix.EADDRINUSE) {
					t.Errorf("another user can bind %v with the options %v: %v", host, options, bound)
				}
			}
		})
	}
	for range 2 { // as two ranks of a node
		if address, _ := listen(t, r.Address(), nil); address != r.Address() {
			t.Errorf("it listens at %s, want %s", address, r.Address())
		}
	}
	if (*Reservation)(nil).Address() != "" {
		t.Error("no reservation has an address")
	}
}
