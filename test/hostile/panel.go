package hostile

import (
	"math/rand/v2"
	"sync"
	"syscall"
	"time"
)

// panel applies the knobs: every call consults it first.
type panel struct {
	mu     sync.Mutex
	knobs  Knobs         // guarded by mu
	turned chan struct{} // closed and replaced when the knobs change; guarded by mu
	random *rand.Rand    // guarded by mu
}

func newPanel(knobs Knobs) *panel {
	p := &panel{turned: make(chan struct{})}
	p.set(knobs)
	return p
}

// set changes the knobs. They apply to calls that arrive after its return.
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

// pass delays a call as required. It returns the knobs that apply to the call, and the error to
// return if the call must not be executed. An interrupt does not end the delay.
func (p *panel) pass(op operation) (Knobs, syscall.Errno) {
	knobs, latency := p.await()
	if latency > 0 {
		time.Sleep(latency)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return knobs, knobs.fault(op, p.random)
}

// await waits until calls are not held, and returns the knobs and a latency.
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
