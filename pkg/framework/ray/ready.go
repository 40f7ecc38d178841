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

// looker looks at the Ray of one node, to see whether it is up.
type looker struct {
	gcs, token string // the address of the GCS, and the cluster's token where it has one
	tempDir    string
	self       member
}

// head takes one look and returns nil when the GCS answers for the session that is
// in tempDir, and so is this attempt's, and its own node is alive. Workers that
// start before that wait two seconds longer.
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

// worker takes one look and returns nil when the worker's own node is alive in the
// node table of the GCS. The GCS is asked only once the raylet has opened its
// socket: a thousand workers look at the same time.
func (l looker) worker(ctx context.Context) error {
	sockets, _ := filepath.Glob(filepath.Join(l.tempDir, "session_latest", "sockets", "raylet*")) // the pattern is a constant
	if len(sockets) == 0 {
		return errors.New("ray start has not started the raylet yet")
	}
	return asking(l.gcs, l.token, func(gcs *gcsClient) error { return l.node(ctx, gcs) })
}

// node returns nil when the node is alive in the node table and its raylet answers:
// the GCS takes a raylet that was killed for alive for another quarter of a
// minute, and an earlier start has the same name.
func (l looker) node(ctx context.Context, gcs *gcsClient) error {
	nodes, err := gcs.nodes(ctx, l.self.Name)
	if err != nil {
		return err
	}
	// A GCS that can't select has sent all.
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

// latestSession returns the name of the session that was started last in tempDir.
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

// pace is how often a node looks whether it is up: so that all of them together ask the GCS some thousand times a second
// at most, and the gate does not wait for a look.
func pace(nodes int) time.Duration {
	return min(max(100*time.Millisecond, time.Duration(nodes)*time.Millisecond), 500*time.Millisecond)
}

// explained adds what Ray's own logs say to an error.
func explained(err error, tempDir string) error {
	if err == nil {
		return nil
	}
	if signs := logSigns(tempDir); len(signs) > 0 {
		return fmt.Errorf("%w (in Ray's logs: %s)", err, strings.Join(signs, "; "))
	}
	return err
}
