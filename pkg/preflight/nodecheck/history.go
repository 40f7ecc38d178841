package nodecheck

import (
	"context"
	"fmt"
	"time"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/gpu/history"
	"github.com/bringupd/bringupd/pkg/signal"
)

// addCounters adds the counters that the watch has collected.
func (g *GPUs) addCounters(tallies []gpu.WatchCounters) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.counters.AddGPUCounters(tallies, time.Now())
}

// Devices returns the GPUs as of the last query, with the counters since then, and the network
// cards. Each device has a unique id. slots are the PCI addresses of all GPUs on the node's bus. If
// there are no GPUs, both results are nil.
func (g *GPUs) Devices() (devices []history.Device, slots []string) {
	facts := g.lastFacts()
	// Collect the GPUs that can be identified.
	for _, is := range facts.GPUs {
		uuid, named := is.UUID.Get()
		bus, placed := is.Bus.Get()
		if !named || !placed {
			continue // the GPU is lost
		}
		d := history.Device{ID: uuid, Index: is.Index, Bus: bus, Model: is.Name.OrZero(), RemappedRows: gpu.Reading[int]{Reason: is.Remapped.Reason}}
		if rows, ok := is.Remapped.Get(); ok {
			d.RemappedRows.Value = new(rows.Corrected + rows.Uncorrected)
		}
		devices = append(devices, d)
	}
	if len(devices) == 0 {
		return nil, nil
	}
	// Add the network cards, and the addresses of all GPUs on the bus.
	cards := check.ListNICs(g.Root)
	for _, card := range cards {
		devices = append(devices, history.Device{ID: card.GUID, Name: card.Name, Index: -1, Bus: card.Bus})
	}
	for _, slot := range facts.Slots {
		if slot.ID != gpu.OffBus {
			slots = append(slots, slot.Bus)
		}
	}
	// Add the counters.
	g.addLinkCounts(cards)
	g.mu.Lock()
	defer g.mu.Unlock()
	return history.WithCounters(devices, g.counters.AllCounters()), slots
}

// linkReadTimeout is how long addLinkCounts waits for the counters of all cards. The checks of the
// host wait as long for a card.
const linkReadTimeout = 2 * time.Second

// addLinkCounts adds the current link counters of the network cards. The firmware of a dead card
// may never answer. Then no card is queried again, because each query would leave a thread behind.
func (g *GPUs) addLinkCounts(cards []check.NIC) {
	g.mu.Lock()
	silent := g.nicUnresponsive
	g.mu.Unlock()
	if silent {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), linkReadTimeout)
	defer cancel()
	type links struct{ downs, recoveries *int }
	counted, err := ctxutil.CallBounded(ctx, 0, func() (all []links, _ error) {
		for _, card := range cards {
			downs, recoveries := card.LinkCounts(g.Root)
			all = append(all, links{downs, recoveries})
		}
		return all, nil
	})
	g.mu.Lock()
	defer g.mu.Unlock()
	g.nicUnresponsive = err != nil
	for i, is := range counted {
		g.counters.AddLinkCounts(cards[i].GUID, is.downs, is.recoveries, time.Now())
	}
}

// historyCheck checks the node's devices against the history that earlier jobs with this log
// directory have recorded. It is used outside of a job. A daemon reads the history itself, in
// parallel with the checks, and reports changes as events (pkg/daemon/gpumonitor).
type historyCheck struct {
	signal.HostHistory
	gpus *GPUs
}

// compareDevices compares the devices of the last query and their findings with the records of
// earlier runs. It writes no record. If the history cannot be read, the check is skipped, because
// that is no fault of the node.
func (p historyCheck) compareDevices(ctx context.Context, found []check.Finding) []check.Finding {
	devices, slots := p.gpus.Devices()
	if len(devices) == 0 {
		return nil
	}
	finding := check.Finding{ID: history.CheckID, Verdict: check.Skip, Source: signal.HistoryDir}
	ctx, cancel := context.WithTimeoutCause(ctx, shareTimeout, fmt.Errorf("no response within %v", shareTimeout))
	defer cancel()
	// Read the records of earlier runs. Without any, the check is skipped.
	texts, err := p.ReadRecent(ctx, history.MaxRecords)
	before := history.MergeRecords(texts)
	switch {
	case err != nil:
		finding.Observed = err.Error()
		return []check.Finding{finding}
	case before.Run == "":
		finding.Observed = "no earlier run with GPUs has a record of this node"
		return []check.Finding{finding}
	}
	// Report changes of the devices, and devices with repeated problems.
	var told []check.Finding
	tell := func(news history.Change, hint string) {
		f := finding
		f.Verdict, f.Class, f.Device, f.Observed, f.Hint = check.Warn, check.ClassNode, &news.Device, news.What, hint
		told = append(told, f)
	}
	for _, news := range before.Changes(devices, slots) {
		tell(news, "check whether the change was intended")
	}
	devices = history.WithFindings(devices, found)
	for _, again := range before.RepeatedSuspicions(before.FindSuspicions("", time.Now(), devices), devices) {
		tell(again, "drain the node, and test the device")
	}
	if len(told) == 0 {
		finding.Verdict, finding.Observed = check.Pass, fmt.Sprintf("no change since run %s of %s", before.Run, before.At.Format(time.DateOnly))
		told = append(told, finding)
	}
	return told
}
