package readiness

import (
	"context"
	"fmt"
	"time"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/history"
	"github.com/bringupd/bringupd/pkg/pause"
	"github.com/bringupd/bringupd/pkg/signal"
)

// count takes in what the watch has counted by now.
func (g *GPUs) count(tallies []gpu.Tally) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.courses.Take(tallies, time.Now())
}

// Devices are the GPUs as they were last seen, with what was counted of them since, and the network cards, by what tells
// them from all others; and the addresses of all GPUs on the node's bus. Without GPUs there are none.
func (g *GPUs) Devices() (devices []history.Device, slots []string) {
	facts := g.seen()
	for _, is := range facts.GPUs {
		uuid, named := is.UUID.Get()
		bus, placed := is.Bus.Get()
		if !named || !placed {
			continue // it is lost
		}
		d := history.Device{ID: uuid, Index: is.Index, Bus: bus, Model: is.Name.OrZero(), Rows: gpu.Reading[int]{Why: is.Remapped.Why}}
		if rows, ok := is.Remapped.Get(); ok {
			d.Rows.Value = new(rows.Corrected + rows.Uncorrected)
		}
		devices = append(devices, d)
	}
	if len(devices) == 0 {
		return nil, nil
	}
	cards := check.Cards(g.Root)
	for _, card := range cards {
		devices = append(devices, history.Device{ID: card.GUID, Name: card.Name, Index: -1, Bus: card.Bus})
	}
	for _, slot := range facts.Slots {
		if slot.ID != gpu.OffBus {
			slots = append(slots, slot.Bus)
		}
	}
	g.countLinks(cards)
	g.mu.Lock()
	defer g.mu.Unlock()
	return history.WithCourses(devices, g.courses.Counted()), slots
}

// linksAnswer is for how long the cards' counts are waited for, as the checks of the host wait for a card.
const linksAnswer = 2 * time.Second

// countLinks takes in what the links of the cards have counted by now. The firmware of a dead card may never answer: then
// none is asked again, for each asking would leave a thread behind.
func (g *GPUs) countLinks(cards []check.Card) {
	g.mu.Lock()
	silent := g.silent
	g.mu.Unlock()
	if silent {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), linksAnswer)
	defer cancel()
	type links struct{ downs, recoveries *int }
	counted, err := pause.Bounded(ctx, 0, func() (all []links, _ error) {
		for _, card := range cards {
			downs, recoveries := card.Links(g.Root)
			all = append(all, links{downs, recoveries})
		}
		return all, nil
	})
	g.mu.Lock()
	defer g.mu.Unlock()
	g.silent = err != nil
	for i, is := range counted {
		g.courses.TakeLinks(cards[i].GUID, is.downs, is.recoveries, time.Now())
	}
}

// past is what jobs with this log directory have seen of the node's devices, for who looks without a job. In one it is
// read beside the checks, and told as what befalls the node: pkg/cards.
type past struct {
	signal.Past
	gpus *GPUs
}

// look compares the devices as they were last seen, and what was found of them, with what earlier runs have left. It
// leaves nothing itself. Nobody's node is worse for a history that can't be read.
func (p past) look(ctx context.Context, found []check.Finding) []check.Finding {
	devices, slots := p.gpus.Devices()
	if len(devices) == 0 {
		return nil
	}
	finding := check.Finding{ID: history.ID, Verdict: check.Skip, Source: signal.History}
	ctx, cancel := context.WithTimeoutCause(ctx, shareAnswer, fmt.Errorf("it does not answer within %v", shareAnswer))
	defer cancel()
	texts, err := p.Recall(ctx, history.Records)
	before := history.Read(texts)
	switch {
	case err != nil:
		finding.Observed = err.Error()
		return []check.Finding{finding}
	case before.Run == "":
		finding.Observed = "no run with GPUs has left anything about this node"
		return []check.Finding{finding}
	}
	var told []check.Finding
	tell := func(news history.News, hint string) {
		f := finding
		f.Verdict, f.Class, f.Device, f.Observed, f.Hint = check.Warn, check.Node, &news.Device, news.What, hint
		told = append(told, f)
	}
	for _, news := range before.News(devices, slots) {
		tell(news, "see whether somebody has meant it")
	}
	devices = history.WithFindings(devices, found)
	for _, again := range before.Again(before.Suspects("", time.Now(), devices), devices) {
		tell(again, "drain the node, and test the device")
	}
	if len(told) == 0 {
		finding.Verdict, finding.Observed = check.Pass, fmt.Sprintf("nothing is new since run %s of %s", before.Run, before.At.Format(time.DateOnly))
		told = append(told, finding)
	}
	return told
}
