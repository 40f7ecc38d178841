package main

import (
	"errors"
	"net/netip"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/membership"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

// The constructors below return settings whose values only this program has.

// loopbackSetting accepts an address that only this machine can reach.
func loopbackSetting(name string, to *string, usage string) *config.Setting {
	return config.NewOptional(name, "ADDRESS:PORT", to, func(value string) (string, error) {
		if at, err := netip.ParseAddrPort(value); err != nil || !at.Addr().IsLoopback() {
			return "", errors.New("give a loopback address and a port, as in 127.0.0.1:0 or [::1]:9464")
		}
		return value, nil
	}, usage)
}

// probeSetting accepts a probe.
func probeSetting(name string, to **health.Probe, usage string) *config.Setting {
	return config.NewOptional(name, "PROBE", to, func(value string) (*health.Probe, error) {
		p, err := health.ParseProbe(value)
		return &p, err
	}, usage)
}

// quorumSetting accepts the number of sandboxes that the gate needs.
func quorumSetting(name string, to *membership.SandboxQuorum, usage string) *config.Setting {
	s := config.NewValue(name, "WHICH", to, membership.ParseSandboxQuorum, config.ShowText, usage)
	s.AcceptedWords = []string{"all", "any", "head"}
	return s
}

// runNameSetting accepts a valid name of a run. Without one, the launcher provides it.
func runNameSetting(name string, to *string, usage string) *config.Setting {
	return config.NewOptional(name, "NAME", to, func(value string) (string, error) {
		return value, launcher.CheckRunName(value)
	}, usage)
}

// nodeRangeSetting accepts a number of nodes, or a minimum and a maximum.
func nodeRangeSetting(name string, to *membership.NodeRange, usage string) *config.Setting {
	return config.NewValue(name, "MIN[:MAX]", to, membership.ParseNodeRange, func(b membership.NodeRange) any {
		if b.Min == 0 {
			return nil
		}
		return b.String()
	}, usage)
}
