package exec

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/bringupd/bringupd/pkg/gpu/ncclras"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/process/stackdump"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// NCCLFlag makes the command of a snapshot ask the node's NCCL instead, and print a
// [ncclras.Summary] as JSON.
const NCCLFlag = "--nccl"

// ncclTimeout is the timeout of the question to NCCL, which has a shorter one of its own.
const ncclTimeout = 20 * time.Second

// Diagnosis is a snapshot of a run, with the answer of its NCCL.
type Diagnosis struct {
	stackdump.RunSnapshot
	NCCL *ncclras.Summary `json:"nccl,omitempty"` // nil if no node runs NCCL
}

// FormatText returns the diagnosis as text for users.
func (d Diagnosis) FormatText() string {
	text := d.RunSnapshot.FormatText()
	if d.NCCL != nil {
		text += d.NCCL.FormatText(d.worldRank)
	}
	return text
}

// FormatFindings returns what NCCL has found, as sentences.
func (d Diagnosis) FormatFindings() []string {
	if d.NCCL == nil {
		return nil
	}
	return d.NCCL.FormatFindings(d.worldRank)
}

// worldRank returns the rank in the world of a process, or -1 if it is not known by its PID alone:
// ranks in containers and on different nodes may have the same.
func (d Diagnosis) worldRank(m ncclras.Member) int {
	found := -1
	for _, report := range d.Reports {
		rank, isRank := report.Rank()
		isShown := report.Process != nil && report.Process.PID == m.PID
		if !isRank || report.PID != m.PID && !isShown {
			continue
		}
		if found >= 0 {
			return -1
		}
		found = rank
	}
	return found
}

// AskNCCL asks the NCCL of the run once, on one node that runs it, about all communicators. request is
// that of the snapshot. It returns nil if no node runs NCCL.
func AskNCCL(ctx context.Context, again <-chan struct{}, dir *signal.Dir, job record.Job,
	request Request, seen stackdump.RunSnapshot) *ncclras.Summary {
	member, host := selectNCCLMember(seen)
	if member < 0 {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, ncclTimeout, fmt.Errorf("no answer within %s", ncclTimeout))
	defer cancel()
	request.Argv, request.Nodes = []string{request.Argv[0], NCCLFlag}, []string{memberWord(job, member)}
	answers, err := askNodes(ctx, again, dir, job, request)
	if err == nil && answers[0].problem != "" {
		err = errors.New(answers[0].problem)
	}
	summary := new(ncclras.Summary)
	if err == nil {
		err = json.Unmarshal(answers[0].text.Bytes(), summary)
	}
	if err != nil {
		summary = &ncclras.Summary{Problem: fmt.Sprintf("cannot ask NCCL: %v", err)}
	}
	summary.Host = host
	return summary
}

// memberWord returns the word by which a request selects a member: its node or, for the daemon of a
// further job step, the step and its node.
func memberWord(job record.Job, member int) string {
	node := fmt.Sprint(record.NodeOfMember(member, job.Size))
	if step := record.StepOfMember(member, job.Size); step > 0 && step <= len(job.Steps) {
		return job.Steps[step-1] + "/" + node
	}
	return node
}

// selectNCCLMember returns the member whose NCCL is asked, or -1 if there is none: one without stopped
// and stuck processes if possible, because these do not answer.
func selectNCCLMember(seen stackdump.RunSnapshot) (member int, host string) {
	held := make(map[int]bool)
	for _, report := range seen.Reports {
		if report.Process != nil && report.Process.IsHeld() {
			held[report.Member] = true
		}
	}
	member = -1
	for _, report := range seen.Reports {
		if report.HasNCCL && (member < 0 || held[member] && !held[report.Member]) {
			member, host = report.Member, report.Host
		}
	}
	return member, host
}

// localNCCL returns the address of this node's NCCL according to the variables of a child of the
// daemon. It returns an empty string if there is none, or if the job's NCCL uses an address of the
// user, at which any job may answer.
func localNCCL(lookup func(name string) (string, bool)) string {
	reserved, _ := lookup(ncclras.ReservedVariable)
	if used, _ := lookup(ncclras.AddressVariable); used != reserved {
		return ""
	}
	return reserved
}

// NodeHasNCCL reports whether NCCL runs in processes of this node, and can be asked. It connects to
// none of them.
func NodeHasNCCL(lookup func(name string) (string, bool)) bool {
	at, err := netip.ParseAddrPort(localNCCL(lookup))
	if err != nil {
		return false
	}
	listeners, err := health.FindListeners(int(at.Port()), int(at.Port()))
	return err == nil && len(listeners) > 0
}

// AskNodeNCCL asks the NCCL of this node's processes, and returns what is worth passing on.
func AskNodeNCCL(ctx context.Context, lookup func(name string) (string, bool)) ncclras.Summary {
	report, err := ncclras.Ask(ctx, localNCCL(lookup))
	if err != nil {
		return ncclras.Summary{Problem: err.Error(), Findings: []ncclras.Finding{}}
	}
	return report.Summarize()
}
