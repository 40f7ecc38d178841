package monitor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/prose"
)

// Part is the check of what one monitor says.
type Part struct {
	ID string // of the check: monitor.gpud

	name string // for people
	port int    // where it listens on this machine
	root string // where /proc and /usr are
	// ask returns what the monitor knows. Its error, which names the monitor, says why that is nothing.
	ask func(context.Context) (answer, error)
}

// answer is what a monitor knows.
type answer struct {
	well string // where there are no woes: what is well
	woes []woe  // the worst first
}

// woe is something that a monitor finds wrong.
type woe struct {
	said string
	hint string
}

// Parts are the checks of all monitors that we know, on the machine whose /proc and /usr are below root; empty: /.
func Parts(root string) []*Part {
	root = cmp.Or(root, "/")
	dcgmi := filepath.Join(root, "usr/bin/dcgmi")
	return []*Part{
		{ID: "monitor.gpud", name: "gpud", port: gpudPort, root: root,
			ask: func(ctx context.Context) (answer, error) { return askGpud(ctx, gpudPort) }},
		{ID: "monitor.dcgm", name: "DCGM's host engine", port: dcgmPort, root: root,
			ask: func(ctx context.Context) (answer, error) { return askDCGM(ctx, dcgmi) }},
	}
}

// IDs are those of the checks.
func IDs() (ids []string) {
	for _, p := range Parts("") {
		ids = append(ids, p.ID)
	}
	return ids
}

// Traits are none: what a monitor has seen of a node is its own.
func (*Part) Traits() []check.Trait { return nil }

const (
	answerLimit  = 2 * time.Second
	mostFindings = 8   // things that a monitor finds wrong
	mostSaid     = 200 // characters of what it says of one
)

var errSilent = errors.New("it has not answered within 2 s")

// Look asks the monitor once, for 2 s at most, where root listens in its place: on a port of this machine anybody may
// listen who comes first. There is one finding for each thing that the monitor finds wrong, eight at most.
func (p *Part) Look(ctx context.Context, _ func([]check.Finding)) []check.Finding {
	sheet := check.Sheet{Each: check.Finding{ID: p.ID, Source: fmt.Sprintf("127.0.0.1:%d", p.port)}}
	if why := p.absent(); why != "" {
		sheet.Skip(why)
		return sheet.Found
	}
	ctx, cancel := context.WithTimeoutCause(ctx, answerLimit, errSilent)
	defer cancel()
	told, err := p.ask(ctx)
	if ctx.Err() != nil {
		err = fmt.Errorf("cannot ask %s: %v", p.name, context.Cause(ctx))
	}
	if err != nil {
		sheet.Skip(prose.Line(err.Error(), mostSaid))
		return sheet.Found
	}
	judge(&sheet, told)
	return sheet.Found
}

// absent says why the monitor is not to be asked; empty: it is.
func (p *Part) absent() string {
	switch users, err := listeners(p.root, p.port); {
	case err != nil:
		return fmt.Sprintf("cannot see whether %s is there: %v", p.name, err)
	case len(users) == 0:
		return fmt.Sprintf("%s is not there: nobody listens on port %d", p.name, p.port)
	default:
		if at := slices.IndexFunc(users, func(uid string) bool { return uid != "0" }); at >= 0 {
			return fmt.Sprintf("who listens on port %d, where %s does, is the user %s and not root: not believed", p.port, p.name, users[at])
		}
		return ""
	}
}

// judge writes down what a monitor has told. It fails no node but for acceptance: what it minds may be past, or nothing
// to the job.
func judge(sheet *check.Sheet, told answer) {
	if len(told.woes) == 0 {
		sheet.Pass(told.well)
		return
	}
	shown := told.woes
	if len(shown) > mostFindings {
		shown = shown[:mostFindings-1]
	}
	for _, w := range shown {
		sheet.Warn(check.Node, prose.Line(w.said, mostSaid), "", prose.Line(w.hint, mostSaid)).Strict = true
	}
	if more := told.woes[len(shown):]; len(more) > 0 {
		sheet.Warn(check.Node, prose.Line(fmt.Sprintf("and %d more, as %s", len(more), more[0].said), mostSaid), "", prose.Line(more[0].hint, mostSaid)).Strict = true
	}
}
