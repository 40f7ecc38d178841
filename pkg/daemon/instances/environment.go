package instances

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/service"
)

// environment makes the variables of the processes of a node.
type environment struct {
	cfg          NodeConfig
	plan         *atomic.Pointer[knownPlan]
	shared       map[string]string // variables that all processes have: keys and files of endpoints
	endpointsDir string            // holds the files of endpoints; empty: there are none
}

// newEnvironment returns the environment of a node's processes, and creates the files of
// endpoints, empty at first, unless there are stand-ins.
func newEnvironment(cfg NodeConfig, plan *atomic.Pointer[knownPlan]) (environment, error) {
	e := environment{cfg: cfg, plan: plan, shared: make(map[string]string)}
	if !roles.HasNamed(cfg.Defs) {
		return e, nil
	}
	for _, def := range cfg.Defs {
		e.shared["BRINGUPD_ROLE_"+roles.VariableName(def.Name)+"_KEY"] = cfg.Host.RoleKey(def.Name)
	}
	if cfg.StandIns != nil {
		return e, nil
	}
	private, err := cfg.Host.PrivateDir()
	if err == nil {
		e.endpointsDir = filepath.Join(private, "endpoints")
		err = os.MkdirAll(e.endpointsDir, 0o700)
	}
	for _, def := range cfg.Defs {
		file := filepath.Join(e.endpointsDir, def.Name)
		if err == nil {
			err = os.WriteFile(file, nil, 0o600)
		}
		e.shared["BRINGUPD_ENDPOINTS_FILE_"+roles.VariableName(def.Name)] = file
	}
	if err != nil {
		return e, health.NewFailure(health.CheckEnvironment,
			"cannot create the files of endpoints in the private directory of %s: %v", cfg.Name, err)
	}
	return e, nil
}

// keys returns the keys of all roles, which nothing may show.
func (e environment) keys() (keys []string) {
	for name, value := range e.shared {
		if roles.IsKeyVariable(name) {
			keys = append(keys, value)
		}
	}
	return keys
}

// withoutKeys returns a failure without the keys of roles: a process may have printed its own.
func (e environment) withoutKeys(f *health.Failure) *health.Failure {
	hidden, keys := *f, e.keys()
	hidden.Message = textutil.HideValues(f.Message, keys)
	hidden.ErrorLine = textutil.HideValues(f.ErrorLine, keys)
	hidden.Lines = slices.Clone(f.Lines)
	for i, line := range hidden.Lines {
		hidden.Lines[i] = textutil.HideValues(line, keys)
	}
	return &hidden
}

// processStart has everything that is needed to start a process.
type processStart struct {
	spec         process.Spec
	ports        []framework.Port
	ready, alive *health.Probe // nil if there is none
	// userEnv has the variables of the file, which take precedence. The environment of spec has them,
	// too.
	userEnv map[string]string
}

func (e environment) processStart(s *supervisor, p roles.Process, generation int) (start processStart, err error) {
	// Collect the variables: those of the plan, then those of the file.
	variables := maps.Clone(e.shared)
	maps.Copy(variables, e.plan.Load().listVariables())
	maps.Copy(variables, e.plan.Load().OwnVariables(s.role.Name, s.instance.Index,
		slices.IndexFunc(s.instance.Processes, func(o roles.Process) bool { return o.Rank == p.Rank })))
	variables["BRINGUPD_GENERATION"] = strconv.Itoa(generation)
	node := e.cfg.Host.WorldConfig()
	prepare, bound := node.Layout.LimitProcess(p.GPUs, node.Identity.LocalSize > 1)
	maps.Copy(variables, bound)
	ofCluster, err := clusterVariables(e.cfg, e.plan.Load().Plan, s.role)
	if err != nil {
		return start, err
	}
	maps.Copy(variables, ofCluster)
	start.spec = process.Spec{Argv: commandOf(s.role, p), Prepare: prepare,
		Env: e.cfg.Host.Environ(s.role.Placement, variables)}
	known := maps.Clone(variables)
	for _, entry := range start.spec.Env {
		name, value, _ := strings.Cut(entry, "=")
		if _, isKnown := known[name]; !isKnown && strings.HasPrefix(name, "BRINGUPD_") {
			known[name] = value
		}
	}
	start.userEnv = make(map[string]string)
	for name, value := range s.role.Program.Env {
		if start.userEnv[name], err = roles.ExpandValue(value, known); err != nil {
			return start, fmt.Errorf("variable %s: %w", name, err)
		}
	}
	if len(start.userEnv) > 0 {
		maps.Copy(variables, start.userEnv)
		start.spec.Env = e.cfg.Host.Environ(s.role.Placement, variables)
	}
	// Expand the probes with the same variables. Followers have none, unless all are endpoints.
	for i, port := range s.role.Program.Ports {
		start.ports = append(start.ports,
			framework.Port{Name: port.Name, Number: p.Ports[i], LastNumber: lastPort(p.Ports[i], port.Count)})
	}
	if p.Rank > 0 && !s.role.Program.AllEndpoints {
		return start, nil
	}
	if start.ready, err = e.expandProbe(s.role.Ready.Probe, known, start.spec.Env); err != nil {
		return start, fmt.Errorf("probe of ready: %w", err)
	}
	if start.ready != nil {
		*start.ready = start.ready.WithTry(s.role.Ready.Try)
	}
	if start.alive, err = e.expandProbe(s.role.Alive.Probe, known, start.spec.Env); err != nil {
		return start, fmt.Errorf("probe of alive: %w", err)
	}
	return start, nil
}

func lastPort(first, count int) int {
	if count <= 1 {
		return 0
	}
	return first + count - 1
}

// expandProbe parses a probe after its variables have been replaced; nil if text is empty. No
// error shows a key.
func (e environment) expandProbe(text string, variables map[string]string, env []string) (*health.Probe, error) {
	if text == "" {
		return nil, nil
	}
	expanded, err := roles.ExpandProbe(text, variables)
	if err != nil {
		return nil, err
	}
	probe, err := health.ParseProbe(expanded)
	probe = probe.WithEnv(env, e.keys())
	return &probe, err
}

func commandOf(role *roles.RolePlan, p roles.Process) []string {
	return service.RunInShell(role.Program.Shell, role.Program.CommandOf(p.Rank))
}
