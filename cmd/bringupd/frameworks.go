package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/framework/dask"
	"github.com/bringupd/bringupd/pkg/framework/ray"
	"github.com/bringupd/bringupd/pkg/health"
)

// allFrameworks returns all frameworks with the defaults of their settings. The first is the
// default, and the second is used in examples.
func allFrameworks() []framework.Factory {
	return []framework.Factory{
		&framework.None{},
		ray.New(),
		dask.New(),
	}
}

// frameworkNames returns the values of --framework.
func frameworkNames() (names []string) {
	for _, f := range allFrameworks() {
		names = append(names, f.Name())
	}
	return names
}

func frameworkSetting(to *string) *config.Setting {
	usage := "services to start: " + strings.Join(frameworkNames()[1:], ", ") +
		", or none (your own --head-cmd and --worker-cmd, or nothing)"
	return config.NewChoice("framework", frameworkNames(), to, usage).WithCheck(func(value string) error {
		switch value {
		case "torch", "pytorch", "torchrun":
			return errors.New("torch needs no framework: give --ranks-per-node=gpu, and the program after -- " +
				"without torchrun")
		case "mpi", "mpirun":
			return errors.New("MPI needs no framework: give --ranks-per-node=N, and the program after -- " +
				"without mpirun")
		}
		return nil
	})
}

func frameworkHeading(name string) string { return "With --framework=" + name }

func frameworkSettings(f framework.Factory) config.List {
	var all config.List
	for _, flag := range f.OwnFlags() {
		s := flagSetting(flag)
		s.Category, s.Frameworks = frameworkHeading(f.Name()), []string{f.Name()}
		all = append(all, s)
	}
	return all
}

func flagSetting(flag framework.Flag) *config.Setting {
	switch to := flag.Target.(type) {
	case *string:
		if flag.AcceptedWords != nil {
			return config.NewChoice(flag.Name, flag.AcceptedWords, to, flag.Usage)
		}
		return config.NewText(flag.Name, flag.Placeholder, to, flag.Usage)
	case *[]string:
		return config.NewWordList(flag.Name, flag.Placeholder, to, flag.Usage)
	case **health.Probe:
		return probeSetting(flag.Name, to, flag.Usage)
	default:
		panic(fmt.Sprintf("internal error: --%s sets a %T", flag.Name, to))
	}
}

// probeSetting accepts a probe.
func probeSetting(name string, to **health.Probe, usage string) *config.Setting {
	return config.NewOptional(name, "PROBE", to, func(value string) (*health.Probe, error) {
		p, err := health.ParseProbe(value)
		return &p, err
	}, usage)
}

func (o *options) chosenFramework() framework.Factory {
	at := slices.IndexFunc(o.frameworks, func(f framework.Factory) bool { return f.Name() == o.framework })
	return o.frameworks[max(0, at)]
}
