package pairs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/pause"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/prose"
)

// Tool is what verbs are measured by: it is of perftest (https://github.com/linux-rdma/perftest).
const Tool = "ib_write_bw"

const (
	// toolMargin is what the tool leaves out of a measurement, at its beginning and at its end (-f). The time that it is
	// given must be longer than twice that (perftest's src/perftest_parameters.c).
	toolMargin = time.Second
	// toolTime is by how much longer than its measurement the tool may take: the margins, and to open the card.
	toolTime = 2*toolMargin + 3*time.Second
	// toolEnd is for how long a tool is waited for whose other side has ended.
	toolEnd = 2 * time.Second
	// toolLook is how often it is looked whether a tool listens.
	toolLook = 50 * time.Millisecond
	// mostSaid is how much of what a tool says is kept: what is told of one way is 2 KiB.
	mostSaid = 64 << 10
)

// Port is a port of a card that speaks verbs, and the tool for it.
type Port struct {
	Tool   string `json:"tool"`   // its path
	Device string `json:"device"` // as the kernel names it: mlx5_0
	Number int    `json:"port"`
}

// FindTool returns the path of the tool on this node: in the system's folders, or in those of PATH that are root's alone;
// empty where there is none.
func FindTool(env []string) string {
	path, _ := process.LookupEnv(env, "PATH")
	return findTool(append([]string{"/usr/bin", "/usr/sbin"}, filepath.SplitList(path)...), 0)
}

// findTool returns the first of the tools that nobody but owner could have put in these folders. The links to it are
// followed first.
func findTool(folders []string, owner uint32) string {
	for _, folder := range folders {
		path, err := filepath.EvalSymlinks(filepath.Join(folder, Tool))
		if err != nil || !filepath.IsAbs(path) {
			continue
		}
		if isOwners(path, owner, false) && isOwners(filepath.Dir(path), owner, true) {
			return path
		}
	}
	return ""
}

// isOwners tells whether nobody else can write there.
func isOwners(path string, owner uint32, isDir bool) bool {
	info, err := os.Lstat(path)
	if err != nil || info.IsDir() != isDir || !isDir && !info.Mode().IsRegular() {
		return false
	}
	stat, known := info.Sys().(*syscall.Stat_t)
	return known && stat.Uid == owner && info.Mode().Perm()&0o022 == 0
}

// command is the tool's, on the side that is written to (no host) or on that which writes. Four queue pairs and messages
// of 1 MiB are what fills a fast card. Unless told by -D, the tool would count messages, and take as long as it takes.
func (p Port) command(tcp, host string, lasts time.Duration) []string {
	seconds := max(1, int(lasts.Round(time.Second)/time.Second)) + int(2*toolMargin/time.Second)
	argv := []string{
		p.Tool, "-d", p.Device, "-i", strconv.Itoa(p.Number), "-p", tcp, "-F", "--report_gbits", "-q", "4", "-s", "1048576",
		"-D", strconv.Itoa(seconds), "-f", strconv.Itoa(int(toolMargin / time.Second)),
	}
	if host != "" {
		argv = append(argv, host)
	}
	return argv
}

// TakesVerbs tells why a node whose ear is at the address can't take part; empty: it can.
func TakesVerbs(address string) string {
	if at, err := netip.ParseAddrPort(address); err != nil || !at.Addr().Unmap().Is4() {
		return Tool + " meets its other side by IPv4 alone, and this node is at " + address
	}
	return ""
}

// verbs is one round of transfers by the tool: on one connection the two sides tell each other where it listens, and that
// it has ended.
func (e *Ear) verbs(ctx context.Context, m meeting, env []string) (rate float64, err error) {
	conns, err := e.connect(ctx, m, 0, 1)
	if err != nil {
		return 0, err
	}
	err = conns.each(ctx, func(conn net.Conn) (err error) {
		defer func() { _ = conn.Close() }()
		said := bufio.NewReaderSize(conn, 64)
		for turn := range 2 {
			if m.calls == (turn == 0) {
				err = writeTo(ctx, conn, said, m, env)
			} else {
				rate, err = e.beWrittenTo(ctx, conn, said, m, env)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	return rate, err
}

// writeTo runs the tool's client against that of the partner.
func writeTo(ctx context.Context, conn net.Conn, said *bufio.Reader, m meeting, env []string) error {
	port, err := said.ReadSlice('\n')
	if err != nil {
		return fmt.Errorf("%s did not come up there: %s", Tool, reason(err))
	}
	number, err := strconv.ParseUint(strings.TrimSpace(string(port)), 10, 16)
	if err != nil {
		return fmt.Errorf("cannot read the port that it tells: %v", err)
	}
	host, _, _ := net.SplitHostPort(m.partner.Address)
	if err := run(ctx, m.own.Verbs.command(strconv.Itoa(int(number)), host, m.lasts), env, &process.Beginning{Most: mostSaid}); err != nil {
		return err
	}
	_, err = fmt.Fprintln(conn, "done")
	return err
}

// beWrittenTo runs the tool's server, and returns the rate that it tells in the end.
func (e *Ear) beWrittenTo(ctx context.Context, conn net.Conn, said *bufio.Reader, m meeting, env []string) (rate float64, err error) {
	port, err := e.freePort()
	if err != nil {
		return 0, err
	}
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	output, ran := &process.Beginning{Most: mostSaid}, make(chan error, 1)
	running.Go(func() { ran <- run(ctx, m.own.Verbs.command(strconv.Itoa(port), "", m.lasts), env, output) })
	for !isHeard(port) {
		select {
		case err := <-ran:
			return 0, early(err)
		case <-time.After(toolLook):
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
	if _, err := fmt.Fprintln(conn, port); err != nil {
		return 0, err
	}
	if _, err := said.ReadSlice('\n'); err != nil {
		return 0, fmt.Errorf("%s did not end well there: %s", Tool, reason(err))
	}
	ending := time.AfterFunc(toolEnd, func() { cancel(errors.New(Tool + " did not end when its other side had")) })
	defer ending.Stop()
	if err := <-ran; err != nil {
		return 0, err
	}
	return parse(output.String())
}

// early is an error in any case: a server that has ended before anybody came has not done what it should.
func early(err error) error {
	if err == nil {
		return errors.New(Tool + " has ended before it was met")
	}
	return err
}

// isHeard tells whether somebody listens on a port of this node. To connect would be to be taken for the other side.
func isHeard(port int) bool {
	found, err := health.Listeners(port, port)
	return err == nil && len(found) > 0
}

// freePort returns a port that is free now.
func (e *Ear) freePort() (int, error) {
	listener, err := e.network.Listen()
	if err != nil {
		return 0, err
	}
	defer func() { _ = listener.Close() }()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	return strconv.Atoi(port)
}

// run runs the tool. Its error has what the tool has said last. One that hangs in its driver is left behind.
func run(ctx context.Context, argv, env []string, output *process.Beginning) error {
	_, err := pause.Bounded(ctx, toolEnd, func() (struct{}, error) {
		return struct{}{}, process.Command{Argv: argv, Env: env, Stdout: output, Stderr: output}.Run(ctx)
	})
	if err == nil {
		return nil
	}
	lines := slices.DeleteFunc(strings.Split(output.String(), "\n"), func(line string) bool { return strings.TrimSpace(line) == "" })
	if len(lines) > 0 && ctx.Err() == nil {
		return fmt.Errorf("%s: %v: %s", Tool, err, prose.Line(prose.Plain(lines[len(lines)-1]), 100))
	}
	return fmt.Errorf("%s: %w", Tool, err)
}

// parse returns the average that the tool tells, in GB/s. It is the fourth number below its heading; between them there
// may be remarks on the CPU's clock (perftest's src/perftest_parameters.h: RESULT_FMT_G, REPORT_FMT). A Gb is 10^9 bits.
func parse(output string) (float64, error) {
	_, below, found := strings.Cut(output, "BW average[Gb/sec]")
	for line := range strings.Lines(below) {
		fields := strings.Fields(line)
		if !found || len(fields) < 4 {
			continue
		}
		if _, err := strconv.ParseUint(fields[0], 10, 64); err != nil {
			continue
		}
		if rate, err := strconv.ParseFloat(fields[3], 64); err == nil && rate > 0 && !math.IsInf(rate, 0) {
			return rate / 8, nil
		}
	}
	return 0, fmt.Errorf("cannot find a bandwidth in what %s has said (%d bytes)", Tool, len(output))
}
