package instances

import (
	"bytes"
	"fmt"
	"io"
	"sync"

	"github.com/bringupd/bringupd/pkg/roles"
)

// outputs decides which processes write to the standard streams of the daemon.
type outputs struct {
	out, err io.Writer
	alone    bool // the only primary role has one process
	mu       *sync.Mutex
}

func newOutputs(cfg NodeConfig, plan *roles.Plan) *outputs {
	o := &outputs{out: cfg.Out, err: cfg.Err, mu: new(sync.Mutex)}
	processes := 0
	for i := range plan.Roles {
		if role := &plan.Roles[i]; role.Primary {
			for _, instance := range role.Instances {
				processes += len(instance.Processes)
			}
		}
	}
	o.alone = processes == 1
	return o
}

// writers returns the writers for the output of a process: nil for a role that is not primary. If
// several processes are primary, their lines begin with their name.
func (o *outputs) writers(role *roles.RolePlan, instance *roles.Instance, p roles.Process) (out, err io.Writer) {
	switch {
	case !role.Primary:
		return nil, nil
	case o.alone:
		return o.out, o.err
	}
	tag := fmt.Sprintf("%s.%d: ", role.Name, instance.Index)
	if len(instance.Processes) > 1 {
		tag = fmt.Sprintf("%s.%d.%d: ", role.Name, instance.Index, p.Rank)
	}
	return &lineTagger{out: o.out, tag: tag, mu: o.mu}, &lineTagger{out: o.err, tag: tag, mu: o.mu}
}

// maxPartialLine is the number of bytes from which an unfinished line is passed on.
const maxPartialLine = 64 << 10

// lineTagger passes on whole lines, each after a tag.
type lineTagger struct {
	out     io.Writer
	tag     string
	partial []byte
	mu      *sync.Mutex // protects out, which several taggers share
}

// Write implements io.Writer.
func (t *lineTagger) Write(data []byte) (int, error) {
	t.partial = append(t.partial, data...)
	var lines bytes.Buffer
	for {
		end := bytes.IndexByte(t.partial, '\n') + 1
		if end == 0 && len(t.partial) < maxPartialLine {
			break
		}
		if end == 0 {
			t.partial = append(t.partial, '\n')
			end = len(t.partial)
		}
		lines.WriteString(t.tag)
		lines.Write(t.partial[:end])
		t.partial = t.partial[end:]
	}
	if lines.Len() == 0 {
		return len(data), nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, err := t.out.Write(lines.Bytes()); err != nil {
		return 0, err
	}
	return len(data), nil
}
