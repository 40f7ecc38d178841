package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/framework/dask"
	"github.com/bringupd/bringupd/pkg/framework/ray"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/setting"
)

// frameworks returns all frameworks with the defaults of their settings. The first is the default,
// and the second is used in examples.
func frameworks() []framework.Choice {
	return []framework.Choice{
		&framework.None{},
		ray.New(),
		dask.New(),
	}
}

// frameworkNames returns the values of --framework.
func frameworkNames() (names []string) {
	for _, f := range frameworks() {
		names = append(names, f.Name())
	}
	return names
}

// frameworkSetting returns the setting --framework.
func frameworkSetting(to *string) *setting.Setting {
	s := setting.Choice("framework", frameworkNames(), to,
		"what to bring up: none (your own commands, or nothing) or "+strings.Join(frameworkNames()[1:], " or "))
	choose := s.Take
	s.Take = func(value string) error {
		switch value {
		case "torch", "pytorch", "torchrun":
			return errors.New("torch needs no framework: give --ranks-per-node=gpu, and the program behind -- without torchrun")
		case "mpi", "mpirun":
			return errors.New("MPI needs no framework: give --ranks-per-node=N, and the program behind -- without mpirun")
		}
		return choose(value)
	}
	return s
}

// frameworkFlags returns the heading of a framework's own flags.
func frameworkFlags(name string) string { return "With --framework=" + name }

// ownSettings returns the settings that only one framework has.
func ownSettings(f framework.Choice) setting.List {
	var all setting.List
	for _, flag := range f.Flags() {
		all = append(all, ownSetting(flag))
	}
	for _, s := range setting.Under(frameworkFlags(f.Name()), all...) {
		s.Framework = f.Name()
	}
	return all
}

func ownSetting(flag framework.Flag) *setting.Setting {
	switch to := flag.Value.(type) {
	case *string:
		if flag.Words != nil {
			return setting.Choice(flag.Name, flag.Words, to, flag.Usage)
		}
		return setting.Text(flag.Name, flag.Shape, to, flag.Usage)
	case *[]string:
		return setting.Words(flag.Name, flag.Shape, to, flag.Usage)
	case *int:
		return setting.Number(flag.Name, to, 0, flag.Most, flag.Usage)
	case **health.Probe:
		return probe(flag.Name, to, flag.Usage)
	default:
		panic(fmt.Sprintf("internal error: --%s sets a %T", flag.Name, to))
	}
}

// chosen returns the framework that --framework selects.
func (o *options) chosen() framework.Choice {
	for _, f := range o.frameworks {
		if f.Name() == o.framework {
			return f
		}
	}
	return o.frameworks[0]
}
