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
)

// dialer connects to a GCS or a raylet; the caller closes it.
type dialer func(address string) (server, error)

// server is what is asked of a GCS; a raylet answers Health only.
type server interface {
	Health(ctx context.Context) error
	SessionName(ctx context.Context) (string, error)
	Nodes(ctx context.Context, names ...string) ([]entry, error)
	Close() error
}

var _ server = (*gcsClient)(nil)

// headReady takes one look and returns nil when the GCS at address answers
// for the session that is in tempDir, and so is this attempt's, and its own node
// is alive. Workers that start before that wait two seconds longer.
func headReady(ctx context.Context, dial dialer, address, tempDir string, member member) error {
	ours, err := latestSession(tempDir)
	if err != nil {
		return err
	}
	gcs, err := dial(address)
	if err != nil {
		return err
	}
	defer func() { _ = gcs.Close() }()
	if err := gcs.Health(ctx); err != nil {
		return err
	}
	theirs, err := gcs.SessionName(ctx)
	if err != nil {
		return err
	}
	if theirs != ours {
		return fmt.Errorf("cannot take Ray's GCS at %s for this attempt's: its session is %s, and %s was started", address, theirs, ours)
	}
	return nodeReady(ctx, dial, gcs, member)
}

// workerReady takes one look and returns nil when the worker's own node is
// alive in the node table of the GCS at address. The GCS is asked only once the
// raylet has opened its socket: a thousand workers look at the same time.
func workerReady(ctx context.Context, dial dialer, address, tempDir string, member member) error {
	sockets, _ := filepath.Glob(filepath.Join(tempDir, "session_latest", "sockets", "raylet*")) // the pattern is a constant
	if len(sockets) == 0 {
		return errors.New("ray start has not started the raylet yet")
	}
	gcs, err := dial(address)
	if err != nil {
		return err
	}
	defer func() { _ = gcs.Close() }()
	return nodeReady(ctx, dial, gcs, member)
}

// nodeReady returns nil when the member is alive in the node table and its
// raylet answers: the GCS takes a raylet that was killed for alive for another
// quarter of a minute, and an earlier start has the same name.
func nodeReady(ctx context.Context, dial dialer, gcs server, member member) error {
	nodes, err := gcs.Nodes(ctx, member.Name)
	if err != nil {
		return err
	}
	// A GCS that can't select has sent all.
	nodes = slices.DeleteFunc(nodes, func(n entry) bool { return n.Name != member.Name })
	alive := living(nodes)
	if len(alive) == 0 {
		return errors.New("the node " + memberGap(member, nodes))
	}
	newest := slices.MaxFunc(alive, byNameAndStart)
	if gap := memberGap(member, []entry{newest}); gap != "" {
		return errors.New("the node " + gap)
	}
	raylet, err := dial(net.JoinHostPort(newest.Address, strconv.Itoa(newest.Port)))
	if err != nil {
		return err
	}
	defer func() { _ = raylet.Close() }()
	return raylet.Health(ctx)
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

// explained adds what Ray's own logs say to an error.
func explained(err error, tempDir string) error {
	signs := logSigns(tempDir)
	if err == nil || len(signs) == 0 {
		return err
	}
	return fmt.Errorf("%w (in Ray's logs: %s)", err, strings.Join(signs, "; "))
}
