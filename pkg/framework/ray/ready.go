package ray

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// readinessCheck checks whether the Ray of one node is up.
type readinessCheck struct {
	gcs     gcsServer
	tempDir string
	ownNode expectedNode
}

// checkHead checks once, and returns nil if the GCS answers for the session in tempDir, which
// belongs to this attempt, and its own node is alive. Workers that start earlier wait two seconds
// longer.
func (l readinessCheck) checkHead(ctx context.Context) error {
	target, err := os.Readlink(filepath.Join(l.tempDir, "session_latest"))
	if errors.Is(err, os.ErrNotExist) {
		return errors.New("ray start has not created its session yet")
	}
	if err != nil {
		return fmt.Errorf("cannot read Ray's latest session: %v", err)
	}
	own := filepath.Base(target)
	if err := l.gcs.checkHealth(ctx); err != nil {
		return err
	}
	heads, err := l.gcs.sessionName(ctx)
	if err != nil {
		return err
	}
	if heads != own {
		return fmt.Errorf("cannot use Ray's GCS at %s: its session is %s, but this attempt "+
			"started %s", l.gcs.address, heads, own)
	}
	return l.checkNode(ctx)
}

// checkWorker checks once, and returns nil if the worker's own node is alive in the node table of
// the GCS. It sends a request only once the raylet has opened its socket, because a thousand
// workers poll at the same time.
func (l readinessCheck) checkWorker(ctx context.Context) error {
	// the pattern is a constant
	sockets, _ := filepath.Glob(filepath.Join(l.tempDir, "session_latest", "sockets", "raylet*"))
	if len(sockets) == 0 {
		return errors.New("ray start has not started the raylet yet")
	}
	return l.checkNode(ctx)
}

// checkNode returns nil if the node is alive in the node table and its raylet answers. The GCS
// lists a killed raylet as alive for another 15 s, and an earlier start has the same name.
func (l readinessCheck) checkNode(ctx context.Context) error {
	nodes, err := l.gcs.nodeTable(ctx, l.ownNode.Name)
	if err != nil {
		return err
	}
	// A GCS that cannot select returns all nodes.
	nodes = slices.DeleteFunc(nodes, func(n tableEntry) bool { return n.Name != l.ownNode.Name })
	alive := aliveEntries(nodes)
	if len(alive) == 0 {
		return errors.New("the node " + nodeGap(l.ownNode, nodes))
	}
	newest := slices.MaxFunc(alive, compareNameAndStart)
	if gap := nodeGap(l.ownNode, []tableEntry{newest}); gap != "" {
		return errors.New("the node " + gap)
	}
	raylet := net.JoinHostPort(newest.Address, strconv.Itoa(newest.Port))
	return gcsServer{raylet, l.gcs.token}.checkHealth(ctx)
}

// readyInterval returns the interval at which a node checks whether it is up. All nodes together
// send at most a few thousand requests a second to the GCS, and the gate does not wait for a poll.
func readyInterval(nodes int) time.Duration {
	return min(max(100*time.Millisecond, time.Duration(nodes)*time.Millisecond), 500*time.Millisecond)
}

// withLogLines adds lines of Ray's own logs to an error.
func withLogLines(err error, tempDir string) error {
	if err == nil {
		return nil
	}
	if signs := failureLines(tempDir); len(signs) > 0 {
		return fmt.Errorf("%w (in Ray's logs: %s)", err, strings.Join(signs, "; "))
	}
	return err
}
