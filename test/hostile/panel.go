package hostile

import (
	"math/rand/v2"
	"sync"
	"syscall"
	"time"
)

// panel is where the knobs are in force: every call asks it first.
type panel struct {
	mu     sync.Mutex
	knobs  Knobs         // guarded by mu
	turned chan struct{} // closed and replaced when the knobs are turned, guarded by mu
	random *rand.Rand    // guarded by mu
}

func newPanel(knobs Knobs) *panel {
	p := &panel{turned: make(chan struct{})}
	p.set(knobs)
	return p
}

// set turns the knobs: calls that come after its return meet the new ones.
func (p *panel) set(knobs Knobs) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.random == nil || knobs.Seed != p.knobs.Seed {
		p.random = rand.New(rand.NewPCG(knobs.Seed, 0))
	}
	p.knobs = knobs
	close(p.turned)
	p.turned = make(chan struct{})
}

// pass has a call wait for as long as it is to, and returns the knobs that hold
// for it and what it is answered with if it is not to be made. Nothing ends the
// wait early: to who calls, the server is deaf.
func (p *panel) pass(op operation) (Knobs, syscall.Errno) {
	knobs, latency := p.await()
	if latency > 0 {
		time.Sleep(latency)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return knobs, knobs.fault(op, p.random)
}

// await waits until calls are not held.
func (p *panel) await() (Knobs, time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.knobs.Held {
		turned := p.turned
		p.mu.Unlock()
		<-turned
		p.mu.Lock()
	}
	return p.knobs, p.knobs.Latency.draw(p.random)
}
