package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bringupd/bringupd/pkg/gate"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/metrics"
	"github.com/bringupd/bringupd/pkg/prose"
	"github.com/bringupd/bringupd/pkg/team"
)

// The constructors of settings, one for each type of value.

// valued is a setting of one value: how it is parsed, and how it is shown.
func valued[T any](name, shape string, to *T, parse func(string) (T, error), show func(T) any, usage string) *setting {
	return &setting{
		name: name, shape: shape, usage: usage,
		take: func(value string) error {
			parsed, err := parse(value)
			if err == nil {
				*to = parsed
			}
			return err
		},
		show: func() any { return show(*to) },
	}
}

// itself shows a value as what it is.
func itself[T any](value T) any { return value }

func text(name, shape string, to *string, usage string) *setting {
	return valued(name, shape, to, func(value string) (string, error) { return value, nil }, itself, usage)
}

// choice takes one of some words.
func choice(name string, accepted []string, to *string, usage string) *setting {
	s := valued(name, "WORD", to, func(value string) (string, error) {
		if !slices.Contains(accepted, value) {
			return "", fmt.Errorf("give one of %s%s", strings.Join(accepted, ", "), suggestion("", value, accepted))
		}
		return value, nil
	}, itself, usage)
	s.accepted = accepted
	return s
}

// number takes a whole number. A default that is not accepted stands for none.
func number(name string, to *int, least, most int, usage string) *setting {
	return valued(name, "N", to, func(value string) (int, error) {
		n, err := strconv.Atoi(value)
		if err != nil || n < least || n > most {
			return 0, fmt.Errorf("give a whole number of %d to %d", least, most)
		}
		return n, nil
	}, func(n int) any {
		if n < least {
			return nil
		}
		return n
	}, usage)
}

// yes is a switch.
func yes(name string, to *bool, usage string) *setting {
	return valued(name, "", to, func(value string) (bool, error) {
		parsed, err := strconv.ParseBool(value)
		if err != nil {
			err = errors.New("give true or false")
		}
		return parsed, err
	}, itself, usage)
}

// words takes a list: a repeated flag, the lines of a variable, or a list in
// the file.
func words(name, shape string, to *[]string, usage string) *setting {
	s := valued(name, shape, to, func(value string) ([]string, error) { return append(*to, value), nil }, itself, usage)
	s.repeats = true
	return s
}

// wait takes a duration, which must have a unit.
func wait(name string, to *time.Duration, usage string) *setting {
	return valued(name, "TIME", to, func(value string) (time.Duration, error) {
		parsed, err := time.ParseDuration(value)
		if err == nil {
			return parsed, nil
		}
		if _, err := strconv.ParseFloat(value, 64); err == nil {
			return 0, errors.New("it has no unit: give one, as in 90s, 5m or 250ms")
		}
		return 0, errors.New("give a number and its unit, as in 90s, 5m or 250ms")
	}, func(d time.Duration) any { return prose.FlagTime(d) }, usage)
}

// loopback takes an address that this machine alone can reach.
func loopback(name string, to *string, usage string) *setting {
	return valued(name, "ADDRESS:PORT", to, func(value string) (string, error) {
		if value == "" {
			return "", nil
		}
		return value, metrics.Loopback(value)
	}, itself, usage)
}

// probe takes a probe; the empty string means none.
func probe(name string, to **health.Probe, usage string) *setting {
	return valued(name, "PROBE", to, func(value string) (*health.Probe, error) {
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
func require(name string, to *gate.Require, usage string) *setting {
	s := valued(name, "WHICH", to, gate.ParseRequire, func(r gate.Require) any { return r.String() }, usage)
	s.accepted = []string{"all", "any", "head"}
	return s
}

// bounds takes a number of nodes, or the least and the most of them.
func bounds(name string, to *team.Bounds, usage string) *setting {
	return valued(name, "MIN[:MAX]", to, team.ParseBounds, func(b team.Bounds) any {
		if b.Min == 0 {
			return nil
		}
		return b.String()
	}, usage)
}
