package service

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/health"
)

// PortWatch watches the listeners on the ports of an instance on this node. It says once that another user
// listens on one of them.
type PortWatch struct {
	Name      string // for messages
	Log       *zap.Logger
	Ports     []int
	Endpoints []ListeningProcess // at which the processes must listen before the instance is listed
	// OnListening is called once when they do.
	OnListening func()
	// MayBeElsewhere reports that the processes may listen on other ports only, which is said once.
	MayBeElsewhere bool
}

// ListeningProcess is a process that is to listen on a port.
type ListeningProcess struct {
	Port        int
	OwnsProcess func(pid int) bool // reports whether that is the process or a descendant
}

const (
	minListenerPause = 50 * time.Millisecond
	maxListenerPause = 5 * time.Second
	// otherPortDelay is how long a process may listen on other ports only.
	otherPortDelay = 10 * time.Second
)

// Run looks at the listeners until ctx ends, or nothing is left to be found.
func (w PortWatch) Run(ctx context.Context) {
	saysStranger, awaits, began := true, len(w.Endpoints) > 0, time.Now()
	for pause := minListenerPause; saysStranger || awaits; pause = min(2*pause, maxListenerPause) {
		if w.Endpoints = slices.DeleteFunc(w.Endpoints, ListeningProcess.listens); awaits && len(w.Endpoints) == 0 {
			awaits = false
			w.OnListening()
		}
		if w.MayBeElsewhere && awaits && time.Since(began) > otherPortDelay {
			w.MayBeElsewhere = !w.findOtherPort()
		}
		if saysStranger {
			saysStranger = !w.findStranger(awaits)
		}
		if !ctxutil.SleepContext(ctx, pause) {
			return
		}
	}
}

// listens reports whether the process, or a descendant, listens at its endpoint.
func (p ListeningProcess) listens() bool {
	found, _ := health.FindListeners(p.Port, p.Port)
	return slices.ContainsFunc(found, func(l health.ListeningSocket) bool { return l.BelongsTo(p.OwnsProcess) })
}

// findOtherPort logs that a process without a probe listens on other ports than that of its endpoint, and
// reports whether it does.
func (w PortWatch) findOtherPort() bool {
	ports, _ := health.ListeningPorts(w.Endpoints[0].OwnsProcess)
	if len(ports) == 0 {
		return false
	}
	w.Log.Warn(fmt.Sprintf("the endpoint of %s, port %d, is not listed, because its processes listen on %s "+
		"%s instead: give them $BRINGUPD_PORT", w.Name, w.Endpoints[0].Port,
		textutil.PluralForm(len(ports), "port"), textutil.FormatRanges(ports)))
	return true
}

// findStranger logs that another user listens on one of the ports, and reports whether one does.
func (w PortWatch) findStranger(awaitsListener bool) bool {
	found, _ := health.FindStrangers(w.Ports...)
	switch {
	case len(found) == 0:
		return false
	case awaitsListener:
		w.Log.Error(fmt.Sprintf("cannot list the endpoint of %s until it listens there itself: %s", w.Name, found[0]))
	default:
		w.Log.Warn(fmt.Sprintf("another user listens beside %s: %s; what is sent to that address does not reach it",
			w.Name, found[0]))
	}
	return true
}
