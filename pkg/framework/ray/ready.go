package ray

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bringupd/bringupd/pkg/framework"
)

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

type expectedNode struct {
	TeamIndex    int
	Host         string
	Name         string             // in the node table
	MinResources map[string]float64 // the minimum of each resource
}

// compareMembers returns nil if the node table has every member alive, once, with its resources,
// and no other node. Otherwise the error names the missing members with the reasons, in the order
// of the nodes, and unexpected nodes last.
func compareMembers(members []expectedNode, nodes []tableEntry) error {
	byName := make(map[string][]tableEntry, len(nodes))
	for _, node := range nodes {
		byName[node.Name] = append(byName[node.Name], node)
	}
	var gaps []string
	for _, member := range members {
		if gap := nodeGap(member, byName[member.Name]); gap != "" {
			gaps = append(gaps, fmt.Sprintf("node %d (%s) %s", member.TeamIndex, member.Host, gap))
		}
		delete(byName, member.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		if alive := aliveEntries(byName[name]); len(alive) > 0 {
			gaps = append(gaps, fmt.Sprintf("%s (%s, %s) is not a node of this job",
				cmp.Or(name, "an unnamed node"), alive[0].Host, alive[0].Address))
		}
	}
	return framework.GapsError(gaps)
}

// nodeGap describes what is wrong with the entries of a member's name. It returns an empty string
// if nothing is.
func nodeGap(member expectedNode, entries []tableEntry) string {
	alive := aliveEntries(entries)
	switch {
	case len(entries) == 0:
		return "is not in Ray's node table"
	case len(alive) == 0:
		last := slices.MaxFunc(entries, compareNameAndStart)
		return "is DEAD in Ray's node table: " + cmp.Or(last.DeathReason, "no reason given")
	case len(alive) > 1:
		// Work of the driver could go to either of them.
		return fmt.Sprintf("is %d times in Ray's node table: Ray has not yet detected the death "+
			"of an earlier start", len(alive))
	}
	return framework.DescribeShortage(alive[0].Resources, member.MinResources)
}

func aliveEntries(nodes []tableEntry) []tableEntry {
	return slices.DeleteFunc(slices.Clone(nodes), func(node tableEntry) bool { return !node.Alive })
}
