package roleruns

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// role is a drawn role.
type role struct {
	name                        string
	nodes                       string // as in the file
	with                        string
	perNode, nodesPer, ranksPer int    // 0: not given
	probe                       string // tcp, http, exec; empty: none
	alive, allEndpoints         bool
	after                       []string
	explicitAfter               bool // after is in the file even if it is empty
	oneshot, primary            bool
	hangs                       bool // its instances may hang: it has a time limit for that
	restarts                    int
	start, run                  int // instances that it requires; -1: all
	backoff                     time.Duration
	behaviour                   behaviour
	jobStep                     string  // further job step whose daemons start it; empty: the run's own
	places                      [][]int // for each instance, the node of each of its processes
	firstNumber                 int     // of its instances among those of all roles
}

// behaviour is how the processes of a role are started and end.
type behaviour struct {
	shell      bool   // the program is a child of the shell instead of replacing it
	stubborn   bool   // it ignores the stop signal
	stopSignal string // empty: the default
}

// processName returns the name of a process as bringupd has it.
func (r *role) processName(index, rank int) string {
	if len(r.places[index]) > 1 {
		return fmt.Sprintf("%s.%d.%d", r.name, index, rank)
	}
	return fmt.Sprintf("%s.%d", r.name, index)
}

// isProbed reports whether bringupd probes a process.
func (r *role) isProbed(rank int) bool { return r.probe != "" && (rank == 0 || r.allEndpoints) }

// spans reports whether an instance has processes on several nodes.
func (r *role) spans(index int) bool {
	return slices.ContainsFunc(r.places[index], func(node int) bool { return node != r.places[index][0] })
}

// needs returns how many instances the role requires.
func (r *role) needs(gateOpen bool) int {
	need := r.start
	if gateOpen {
		need = r.run
	}
	if need < 0 {
		return len(r.places)
	}
	return need
}

// layOut places the instances of the roles on nodes, as the file says.
func layOut(roles []*role, nodes int) {
	free, number := 0, 0
	claims := make(map[string][]int)
	for _, r := range roles {
		var on []int
		switch {
		case r.with != "":
			on = claims[r.with]
			if r.nodes == "1" {
				on = on[:1]
			}
		case r.nodes == "all":
			on = countTo(0, nodes)
		case r.nodes == "head":
			on = []int{0}
		case r.nodes == "rest": // the last that claims nodes
			on = countTo(free, nodes)
		default:
			var count int
			_, _ = fmt.Sscan(r.nodes, &count)
			on = countTo(free, free+count)
			free += count
		}
		claims[r.name] = on
		r.firstNumber, r.places = number, nil
		step := max(1, r.nodesPer)
		if r.ranksPer > 0 && r.nodesPer == 0 {
			step = len(on)
		}
		for first := 0; first+step <= len(on); first += step {
			for range max(1, r.perNode) {
				var places []int
				for _, node := range on[first : first+step] {
					for range max(1, r.ranksPer) {
						places = append(places, node)
					}
				}
				r.places = append(r.places, places)
			}
		}
		number += len(r.places)
	}
}

// countTo returns the numbers from first to before end.
func countTo(first, end int) (numbers []int) {
	for n := first; n < end; n++ {
		numbers = append(numbers, n)
	}
	return numbers
}

// formatFile returns the configuration file of the roles.
func formatFile(s schedule, dir string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "spares: %d\nroles:\n", s.spares)
	for _, r := range s.roles {
		add := func(format string, args ...any) { fmt.Fprintf(&b, "    "+format+"\n", args...) }
		fmt.Fprintf(&b, "  - name: %s\n", r.name)
		if r.nodes != "" {
			add("nodes: %s", r.nodes)
		}
		if r.jobStep != "" {
			add("step: %s", r.jobStep)
		}
		if r.with != "" {
			add("with: %s", r.with)
		}
		for at, key := range []string{"per-node", "nodes-per-instance", "ranks-per-node"} {
			if n := []int{r.perNode, r.nodesPer, r.ranksPer}[at]; n > 0 {
				add("%s: %d", key, n)
			}
		}
		line := "exec $" + programVariable
		if r.behaviour.shell {
			line = "$" + programVariable + "; exit $?"
		}
		add("command: %s", line)
		addProbes(r, dir, add)
		if r.allEndpoints {
			add("endpoints: all")
		}
		if r.explicitAfter {
			add("after: [%s]", strings.Join(r.after, ", "))
		}
		if r.oneshot {
			add("oneshot: true")
		}
		if r.primary {
			add("primary: true")
		}
		if r.hangs {
			add("hang-timeout: %s", hangTimeout)
			add("env: {%s: 1}", printVariable)
		}
		if r.restarts > 0 {
			add("restarts: {max: %d, backoff: %s..%s}", r.restarts, r.backoff, 8*r.backoff)
		}
		if r.start >= 0 || r.run >= 0 {
			add("require: {start: %s, run: %s}", quorum(r.start), quorum(r.run))
		}
		if r.behaviour.stopSignal != "" {
			add("stop-signal: %s", r.behaviour.stopSignal)
		}
		if r.behaviour.stubborn || r.alive || r.hangs {
			add("grace: 400ms")
		}
	}
	return b.String()
}

// hangTimeout is the time after which an instance hangs. Its processes print something six times in a
// second.
const hangTimeout = 5 * time.Second

func addProbes(r *role, dir string, add func(format string, args ...any)) {
	probe := map[string]string{
		"tcp":  "tcp:$BRINGUPD_PORT",
		"http": "http://localhost:$BRINGUPD_PORT/health",
		"exec": "exec:test -e " + dir +
			"/up/$BRINGUPD_ROLE.$BRINGUPD_ROLE_INDEX.$BRINGUPD_INSTANCE_RANK.g$BRINGUPD_GENERATION",
	}[r.probe]
	if r.probe != "" {
		add("ready: {probe: %q, timeout: 1m}", probe)
	}
	if r.alive {
		add("alive: {probe: %q, after: 1s}", probe)
	}
}

func quorum(n int) string {
	if n < 0 {
		return "all"
	}
	return fmt.Sprint(n)
}
