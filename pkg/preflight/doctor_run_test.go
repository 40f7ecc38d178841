package preflight

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/framework/ray"
	"github.com/bringupd/bringupd/pkg/peerlink"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// ceiling limits waits that end much sooner on any machine.
const ceiling = 2 * time.Minute

// checks is a node's checks that return one finding.
type checks struct{ found check.Finding }

func (c checks) AwaitReady(context.Context, func(check.Report)) check.Report {
	return check.Report{Findings: []check.Finding{c.found},
		Attributes: []check.Attribute{{ID: check.AttrKernel, Value: "6.1"}}}
}

func (checks) MaxDuration() time.Duration { return time.Second }

// names is a resolver of a few names.
type names map[string][]string

func (n names) LookupHost(_ context.Context, host string) ([]string, error) {
	if found, ok := n[host]; ok {
		return found, nil
	}
	return nil, &net.DNSError{Err: "no such host", Name: host}
}

// dialer is a network in which names are resolved by a node's own resolver.
type dialer struct{ names }

func (dialer) Listen() (net.Listener, error) { return net.Listen("tcp", "127.0.0.1:0") }

func (d dialer) Dial(ctx context.Context, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if found, ok := d.names[host]; ok {
		host = found[0]
	}
	var dial net.Dialer
	return dial.DialContext(ctx, "tcp", net.JoinHostPort(host, port))
}

// launch returns three nodes in one process, with a shared file system, names and programs of their
// own.
func launch(t *testing.T) []DoctorConfig {
	t.Helper()
	logs := filepath.Join(t.TempDir(), "logs")
	bin := filepath.Join(t.TempDir(), "bin")
	write(t, filepath.Join(bin, "ray"), "#!/bin/sh\necho 'ray, version 2.9.0'\n")
	if err := os.Chmod(filepath.Join(bin, "ray"), 0o700); err != nil {
		t.Fatal(err)
	}
	var hosts []string
	known := make(names)
	for node := range 3 {
		hosts = append(hosts, fmt.Sprint("n", node))
		known[hosts[node]] = []string{"127.0.0.1"}
	}
	temp, err := os.MkdirTemp("/tmp", "d-") // Ray needs a short path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(temp) })
	var nodes []DoctorConfig
	for node, host := range hosts {
		nodes = append(nodes, DoctorConfig{
			ExaminedLaunch: ExaminedLaunch{
				Identity: launcher.Identity{Launcher: launcher.LauncherLocal, NodeIndex: node,
					Size: len(hosts), Host: host, Hosts: hosts, Job: "7", Step: "0", LaunchKey: "key"},
				LogDir: logs, Framework: ray.Cluster{},
			},
			Hostname: host, TempDir: temp, Address: func() (string, error) { return "127.0.0.1", nil },
			Checks:  checks{check.Finding{ID: "host.shm", Verdict: check.Pass, Observed: "64 GiB"}},
			Environ: []string{"PATH=" + bin + ":/bin:/usr/bin"}, Program: "test", JoinTimeout: ceiling,
			Resolver: known, Network: dialer{known},
		})
	}
	return nodes
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// examine runs all nodes and returns the report and each node's exit code.
func examine(t *testing.T, nodes []DoctorConfig) (report DoctorReport, codes []int, errs []error) {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(context.Background(), ceiling, errors.New("the ceiling of the test"))
	defer cancel()
	codes, errs = make([]int, len(nodes)), make([]error, len(nodes))
	var running sync.WaitGroup
	for i, cfg := range nodes {
		running.Go(func() {
			codes[i], errs[i] = RunDoctor(ctx, cfg, func(r DoctorReport) error {
				if cfg.Identity.NodeIndex != 0 || report.Version != 0 {
					t.Errorf("node %d shows a report", cfg.Identity.NodeIndex)
				}
				report = r
				return nil
			})
		})
	}
	running.Wait()
	return report, codes, errs
}

// tells fails the test unless the report has that line about those nodes.
func tells(
	t *testing.T, r DoctorReport, id string, verdict check.Verdict, says string, nodes ...string,
) {
	t.Helper()
	for _, f := range r.Findings {
		if f.ID == id && f.Verdict == verdict && strings.Contains(f.Observed, says) && slices.Equal(f.Nodes, nodes) {
			return
		}
	}
	t.Errorf("no %s %s of %v with %q in\n%s", verdict, id, nodes, says, r.FormatText(true))
}

func TestExaminesAllNodes(t *testing.T) {
	nodes := launch(t)
	report, codes, errs := examine(t, nodes)
	if err := errors.Join(errs...); err != nil || !slices.Equal(codes, []int{0, 0, 0}) {
		t.Fatalf("codes %v, %v\n%s", codes, err, report.FormatText(true))
	}
	tells(t, report, "share.seen", check.Pass, "all 3 nodes can read and write")
	tells(t, report, "share.delay", check.Pass, "response to a record of the head")
	tells(t, report, "clock", check.Pass, "3 nodes within")
	tells(t, report, "framework", check.Pass, "ray 2.9.0 (all 3 nodes)")
	tells(t, report, "head.address", check.Pass, "127.0.0.1")
	tells(t, report, "head.name", check.Pass, "n0")
	tells(t, report, "ports", check.Skip, "no fixed ports requested")
	entries, err := os.ReadDir(nodes[0].LogDir)
	if err != nil || len(entries) > 0 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

func TestFindsPlantedFaults(t *testing.T) {
	holder, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = holder.Close() }()
	port := holder.Addr().(*net.TCPAddr).Port
	nodes := launch(t)
	for i := range nodes {
		nodes[i].Framework = ray.Cluster{Port: port}
	}
	nodes[1].Environ = []string{"PATH=/nowhere"}
	elsewhere := names{"n0": {"127.0.0.2"}, "n2": {"127.0.0.1"}}
	nodes[2].Resolver, nodes[2].Network = elsewhere, dialer{elsewhere}
	nodes[2].Checks = checks{check.Finding{ID: "host.shm", Verdict: check.Warn, Observed: "1.0 MiB"}}
	report, codes, errs := examine(t, nodes)
	if err := errors.Join(errs...); err != nil || !slices.Equal(codes, []int{2, 2, 2}) {
		t.Fatalf("codes %v, %v\n%s", codes, err, report.FormatText(true))
	}
	tells(t, report, "ports", check.Fail, fmt.Sprintf("Ray's GCS cannot use port %d: port %d of ", port, port), "n0")
	tells(t, report, "framework", check.Fail, "not found in PATH", "n1")
	tells(t, report, "head.name", check.Fail, "resolves to 127.0.0.2, but the head does not respond there", "n2")
	tells(t, report, "head.address", check.Pass, "127.0.0.1")
	tells(t, report, "host.shm", check.Warn, "1.0 MiB", "n2")
}

// TestShareOfItsOwn verifies that a node whose log directory differs from that of the others is
// named by the head, and reports the difference itself.
func TestShareOfItsOwn(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds")
	}
	nodes := launch(t)
	for i := range nodes {
		nodes[i].JoinTimeout = 2 * time.Second
	}
	nodes[2].LogDir = filepath.Join(t.TempDir(), "logs")
	report, codes, errs := examine(t, nodes)
	if !slices.Equal(codes, []int{66, 66, 0}) || errs[0] != nil || errs[1] != nil {
		t.Fatalf("codes %v, %v\n%s", codes, errs, report.FormatText(true))
	}
	tells(t, report, "share.seen", check.Fail, "1 of 3 nodes did not appear", "n2")
	tells(t, report, "framework", check.Pass, "ray 2.9.0 (all 2 nodes)")
	if directory, ok := errors.AsType[*signal.DirError](errs[2]); !ok || directory.Host != "n2" {
		t.Errorf("the node says %v", errs[2])
	}
}

// TestDamagedFacts verifies that invalid data of one node does not suppress the results of the
// others.
func TestDamagedFacts(t *testing.T) {
	d := &examiner{DoctorConfig: launch(t)[0], began: time.Now()}
	m, err := d.openRendezvous(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer m.close()
	record := factsRecord{Facts: DoctorFacts{Host: "n0", NodeIndex: 7}}
	if err := m.dir.PublishRecord(t.Context(), signal.NodesDir, m.dir.NodeName(0, factState),
		&record, false); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(m.dir.Path(), signal.NodesDir, m.dir.NodeName(1, factState)), "garbled\n")
	all, unread := m.readFacts(t.Context(), []int{0, 1})
	if len(all) != 1 || all[0].Host != "n0" || all[0].NodeIndex != 0 || !slices.Equal(unread, []int{1}) {
		t.Errorf("read %+v, and not %v", all, unread)
	}
}

// TestUnusableLogDirectory verifies that a log directory that no node can use is one line of the
// report.
func TestUnusableLogDirectory(t *testing.T) {
	nodes := launch(t)[:1]
	nodes[0].Identity.Size, nodes[0].LogDir = 1, filepath.Join(t.TempDir(), "missing", "logs")
	report, codes, errs := examine(t, nodes)
	if codes[0] != 66 || errs[0] != nil {
		t.Fatalf("code %d, %v", codes[0], errs[0])
	}
	tells(t, report, "share.seen", check.Fail, "does not exist")
	tells(t, report, "framework", check.Pass, "ray 2.9.0")
}

// late is a file system that hides, in a directory of the run, names with a prefix until another
// name of the run exists.
type late struct {
	signal.SharedFS
	sub, hides, until string
}

func (l late) ListDir(path string, vet func(signal.FileAttributes) error) ([]string, error) {
	names, err := l.SharedFS.ListDir(path, vet)
	there, _ := filepath.Glob(filepath.Join(filepath.Dir(path), l.until))
	return slices.DeleteFunc(names, func(name string) bool {
		return filepath.Base(path) == l.sub && len(there) == 0 && strings.HasPrefix(name, l.hides)
	}), err
}

// TestInterrupted verifies that an interrupted run leaves nothing behind and that no node waits for
// it.
func TestInterrupted(t *testing.T) {
	disk := signal.NewDiskFS(new(signal.CallMeter))
	const drain, done = signal.ControlDir + "/" + signal.NameOrderlyEnd, signal.NodesDir +
		"/0001." + string(record.StateDone)
	for _, tc := range []struct {
		name   string
		shares []signal.SharedFS // of the nodes that join
	}{
		{"one never comes", []signal.SharedFS{nil, nil}},
		{"one has joined and was not seen yet", []signal.SharedFS{late{disk, signal.NodesDir, "0001.", drain}, nil}},
		{"one is seen when the other has left", []signal.SharedFS{
			late{disk, signal.NodesDir, "0002.", done}, nil, late{disk, signal.ControlDir, signal.NameOrderlyEnd, done},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			nodes := launch(t)[:len(tc.shares)]
			told := errors.New("told to end")
			ctx, cancel := context.WithCancelCause(context.Background())
			defer cancel(nil)
			codes, errs := make([]int, len(nodes)), make([]error, len(nodes))
			var running sync.WaitGroup
			for i, cfg := range nodes {
				cfg.Access.FS = tc.shares[i]
				mine := ctx
				if i > 0 {
					mine = context.Background()
				}
				running.Go(func() {
					codes[i], errs[i] = RunDoctor(mine, cfg,
						func(DoctorReport) error { return errors.New("there is no report") })
				})
			}
			for began := time.Now(); ; time.Sleep(time.Millisecond) {
				joined, _ := filepath.Glob(filepath.Join(nodes[0].LogDir, "*-doctor",
					signal.NodesDir, "000[12]."+string(record.StateJoined)))
				if len(joined) == len(nodes)-1 {
					break
				}
				if time.Since(began) > ceiling {
					t.Fatal("the workers have not joined")
				}
			}
			cancel(told)
			running.Wait()
			if !errors.Is(errs[0], told) {
				t.Errorf("the head says %v", errs[0])
			}
			for node := 1; node < len(nodes); node++ {
				if codes[node] != 66 || errs[node] != nil {
					t.Errorf("node %d ends with %d, %v", node, codes[node], errs[node])
				}
			}
			if entries, err := os.ReadDir(nodes[0].LogDir); err != nil || len(entries) > 0 {
				t.Errorf("left behind: %v, %v", entries, err)
			}
		})
	}
}

// TestInterruptedReport verifies that, after a signal while the report is written, all nodes are
// still informed of the end.
func TestInterruptedReport(t *testing.T) {
	nodes := launch(t)
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	codes, errs := make([]int, len(nodes)), make([]error, len(nodes))
	var running sync.WaitGroup
	for i, cfg := range nodes {
		mine := context.Background()
		if i == 0 {
			mine = ctx
		}
		running.Go(func() {
			codes[i], errs[i] = RunDoctor(mine, cfg, func(DoctorReport) error {
				cancel(errors.New("told to end"))
				return nil
			})
		})
	}
	running.Wait()
	if err := errors.Join(errs...); err != nil || !slices.Equal(codes, []int{0, 0, 0}) {
		t.Errorf("codes %v, %v", codes, err)
	}
	if entries, err := os.ReadDir(nodes[0].LogDir); err != nil || len(entries) > 0 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

// TestTool verifies that a tool that hangs is abandoned, and that one that fails is reported with
// its message.
func TestTool(t *testing.T) {
	d := &examiner{DoctorConfig: launch(t)[0]}
	bin := filepath.Join(t.TempDir(), "bin")
	d.Environ = []string{"PATH=" + bin + ":/bin:/usr/bin"}
	for _, tc := range []struct {
		name, script, says string
		lines              []string
	}{
		{"it fails", "echo broken >&2; exit 3", "3", []string{"broken"}},
		{"it tells nothing", "echo hello", "it printed no version", []string{"hello"}},
		{"it hangs", "exec sleep 1000", "hanging", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			write(t, filepath.Join(bin, "ray"), "#!/bin/sh\n"+tc.script+"\n")
			if err := os.Chmod(filepath.Join(bin, "ray"), 0o700); err != nil {
				t.Fatal(err)
			}
			ctx := context.Background()
			if tc.name == "it hangs" {
				limited, cancel := context.WithTimeoutCause(ctx, time.Second, errors.New("hanging"))
				defer cancel()
				ctx = limited
			}
			got := d.readFrameworkVersion(ctx)
			if !strings.Contains(got.Err, tc.says) || got.Missing || !slices.Equal(got.Lines, tc.lines) {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// TestCallOfAStranger verifies that another program at the head's port is not taken for the head.
func TestCallOfAStranger(t *testing.T) {
	key := bytes.Repeat([]byte{1}, peerlink.KeySize)
	d := &examiner{DoctorConfig: DoctorConfig{Network: dialer{}}}
	d.Identity.Size = 2
	for _, tc := range []struct {
		name   string
		answer func(ctx context.Context, listener net.Listener)
		want   string
	}{
		{"another program", func(_ context.Context, listener net.Listener) {
			if conn, err := listener.Accept(); err == nil {
				_, _ = io.WriteString(conn, "220 mail is welcome here\r\n")
				_ = conn.Close()
			}
		}, "another service responds there"},
		{"another run's head", func(ctx context.Context, listener net.Listener) {
			d.serveConnections(ctx, listener, bytes.Repeat([]byte{2}, peerlink.KeySize))
		}, "another service responds there"},
		{"a silent one", func(ctx context.Context, listener net.Listener) {
			if conn, err := listener.Accept(); err == nil {
				<-ctx.Done()
				_ = conn.Close()
			}
		}, "it accepts connections but does not respond"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			var answering sync.WaitGroup
			answering.Go(func() { tc.answer(ctx, listener) })
			got := d.tryConnect(t.Context(), listener.Addr().String(), key)
			cancel()
			_ = listener.Close()
			answering.Wait()
			if got != tc.want {
				t.Errorf("got %s", got)
			}
		})
	}
}
