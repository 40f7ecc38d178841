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

// The constructors below return settings whose values only this program has.

// loopback accepts an address that only this machine can reach.
func loopback(name string, to *string, usage string) *setting.Setting {
	return setting.Valued(name, "ADDRESS:PORT", to, func(value string) (string, error) {
		if value == "" {
			return "", nil
		}
		return value, metrics.Loopback(value)
	}, setting.Itself, usage)
}

// probe accepts a probe. An empty string means none.
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

// require accepts the number of sandboxes that the gate needs.
func require(name string, to *gate.Require, usage string) *setting.Setting {
	s := setting.Valued(name, "WHICH", to, gate.ParseRequire, func(r gate.Require) any { return r.String() }, usage)
	s.Accepted = []string{"all", "any", "head"}
	return s
}

// runName accepts a valid name of a run. An empty string means that the launcher provides it.
func runName(name string, to *string, usage string) *setting.Setting {
	return setting.Valued(name, "NAME", to, func(value string) (string, error) {
		if value == "" {
			return "", nil
		}
		return value, roles.CheckRunName(value)
	}, setting.Itself, usage)
}

// bounds accepts a number of nodes, or a minimum and a maximum.
func bounds(name string, to *team.Bounds, usage string) *setting.Setting {
	return setting.Valued(name, "MIN[:MAX]", to, team.ParseBounds, func(b team.Bounds) any {
		if b.Min == 0 {
			return nil
		}
		return b.String()
	}, usage)
}

// keeping accepts the selection of old runs that are kept.
func keeping(to *prune.Keep, usage string) *setting.Setting {
	return setting.Valued("keep", "N|TIME", to, prune.ParseKeep, func(k prune.Keep) any { return k.String() }, usage)
}
