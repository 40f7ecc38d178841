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

// looker checks whether the Ray of one node is up.
type looker struct {
	gcs, token string // the address of the GCS, and the cluster's token if it has one
	tempDir    string
	self       member
}

// head checks once, and returns nil if the GCS answers for the session in tempDir, which belongs to
// this attempt, and its own node is alive. Workers that start earlier wait two seconds longer.
func (l looker) head(ctx context.Context) error {
	ours, err := latestSession(l.tempDir)
	if err != nil {
		return err
	}
	return asking(l.gcs, l.token, func(gcs *gcsClient) error {
		if err := gcs.health(ctx); err != nil {
			return err
		}
		theirs, err := gcs.sessionName(ctx)
		if err != nil {
			return err
		}
		if theirs != ours {
			return fmt.Errorf("cannot take Ray's GCS at %s for this attempt's: its session is %s, and %s was started", l.gcs, theirs, ours)
		}
		return l.node(ctx, gcs)
	})
}

// worker checks once, and returns nil if the worker's own node is alive in the node table of the
// GCS. It sends a request only once the raylet has opened its socket, because a thousand workers
// poll at the same time.
func (l looker) worker(ctx context.Context) error {
	sockets, _ := filepath.Glob(filepath.Join(l.tempDir, "session_latest", "sockets", "raylet*")) // the pattern is a constant
	if len(sockets) == 0 {
		return errors.New("ray start has not started the raylet yet")
	}
	return asking(l.gcs, l.token, func(gcs *gcsClient) error { return l.node(ctx, gcs) })
}

// node returns nil if the node is alive in the node table and its raylet answers. The GCS lists a
// killed raylet as alive for another 15 s, and an earlier start has the same name.
func (l looker) node(ctx context.Context, gcs *gcsClient) error {
	nodes, err := gcs.nodes(ctx, l.self.Name)
	if err != nil {
		return err
	}
	// A GCS that cannot select returns all nodes.
	nodes = slices.DeleteFunc(nodes, func(n entry) bool { return n.Name != l.self.Name })
	alive := living(nodes)
	if len(alive) == 0 {
		return errors.New("the node " + memberGap(l.self, nodes))
	}
	newest := slices.MaxFunc(alive, byNameAndStart)
	if gap := memberGap(l.self, []entry{newest}); gap != "" {
		return errors.New("the node " + gap)
	}
	raylet := net.JoinHostPort(newest.Address, strconv.Itoa(newest.Port))
	return asking(raylet, l.token, func(raylet *gcsClient) error { return raylet.health(ctx) })
}

// latestSession returns the name of the session in tempDir that was started last.
func latestSession(tempDir string) (string, error) {
	target, err := os.Readlink(filepath.Join(tempDir, "session_latest"))
	if errors.Is(err, os.ErrNotExist) {
		return "", errors.New("ray start has not made its session yet")
	}
	if err != nil {
		return "", fmt.Errorf("cannot read which session of Ray is the latest: %v", err)
	}
	return filepath.Base(target), nil
}

// pace returns the interval at which a node checks whether it is up. All nodes together send at
// most a few thousand requests a second to the GCS, and the gate does not wait for a poll.
func pace(nodes int) time.Duration {
	return min(max(100*time.Millisecond, time.Duration(nodes)*time.Millisecond), 500*time.Millisecond)
}

// explained adds lines of Ray's own logs to an error.
func explained(err error, tempDir string) error {
	if err == nil {
		return nil
	}
	if signs := logSigns(tempDir); len(signs) > 0 {
		return fmt.Errorf("%w (in Ray's logs: %s)", err, strings.Join(signs, "; "))
	}
	return err
}
