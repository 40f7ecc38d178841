package main

import (
	"github.com/bringupd/bringupd/pkg/gate"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/metrics"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/setting"
	"github.com/bringupd/bringupd/pkg/signal/prune"
	"github.com/bringupd/bringupd/pkg/team"
)

// The constructors of settings whose values are of this program alone.

// loopback takes an address that this machine alone can reach.
func loopback(name string, to *string, usage string) *setting.Setting {
	return setting.Valued(name, "ADDRESS:PORT", to, func(value string) (string, error) {
		if value == "" {
			return "", nil
		}
		return value, metrics.Loopback(value)
	}, setting.Itself, usage)
}

// probe takes a probe; the empty string means none.
func probe(name string, to **health.Probe, usage string) *setting.Setting {
	return setting.Valued(name, "PROBE", to, func(value string) (*health.Probe, error) {
		if value == "" {
			return nil, nil
		}
		p, err := health.ParseProbe(value)
		return &p, err
	}, func(p *health.Probe) any {
		if p == nil {
			return ""
		}
		return p.String()
	}, usage)
}

// require takes how many sandboxes the gate needs.
func require(name string, to *gate.Require, usage string) *setting.Setting {
	s := setting.Valued(name, "WHICH", to, gate.ParseRequire, func(r gate.Require) any { return r.String() }, usage)
	s.Accepted = []string{"all", "any", "head"}
	return s
}

// runName takes a name that a run may have; the empty string means that the launcher names it.
func runName(name string, to *string, usage string) *setting.Setting {
	return setting.Valued(name, "NAME", to, func(value string) (string, error) {
		if value == "" {
			return "", nil
		}
		return value, roles.CheckRunName(value)
	}, setting.Itself, usage)
}

// bounds takes a number of nodes, or the least and the most of them.
func bounds(name string, to *team.Bounds, usage string) *setting.Setting {
	return setting.Valued(name, "MIN[:MAX]", to, team.ParseBounds, func(b team.Bounds) any {
		if b.Min == 0 {
			return nil
		}
		return b.String()
	}, usage)
}

// keeping takes which old runs stay.
func keeping(to *prune.Keep, usage string) *setting.Setting {
	return setting.Valued("keep", "N|TIME", to, prune.ParseKeep, func(k prune.Keep) any { return k.String() }, usage)
}
