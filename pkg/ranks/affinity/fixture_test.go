package affinity

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/bringupd/bringupd/pkg/gpu"
)

// fixture is a node of testdata as a file tree: see the README there.
type fixture struct {
	t     *testing.T
	root  string
	facts gpu.Facts
	env   map[string]string

	cpus    IDSet
	threads int
	online  IDSet // NUMA nodes
}

func fixtures(t *testing.T) (names []string) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) < 8 {
		t.Fatalf("there are %d fixtures, %v", len(files), err)
	}
	for _, file := range files {
		names = append(names, strings.TrimSuffix(filepath.Base(file), ".txt"))
	}
	return names
}

func load(t *testing.T, name string) *fixture {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{t: t, root: t.TempDir(), facts: gpu.Facts{Version: gpu.FactsVersion,
		Init: gpu.Success}, env: map[string]string{}}
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) > 0 && words[0] != "#" {
			f.take(words[0], words[1:])
		}
	}
	if len(f.online) > 0 {
		f.write(path.Join(nodeDir, "online"), f.online.String())
	}
	return f
}

// nodes caches the results of Discover for the fixtures, some of which have hundreds of files.
var nodes = map[string]Node{}

func known(t *testing.T, name string) Node {
	t.Helper()
	n, found := nodes[name]
	if !found {
		n = load(t, name).discovered()
		nodes[name] = n
	}
	return n
}

// discovered returns the result of Discover for the fixture.
func (f *fixture) discovered() Node {
	f.t.Helper()
	n, err := f.discover()
	if err != nil {
		f.t.Fatal(err)
	}
	return n
}

func (f *fixture) discover() (Node, error) {
	return DiscoverNode(f.root, gpu.BuildTopology(f.root, f.facts), func(name string) (string, bool) {
		value, set := f.env[name]
		return value, set
	})
}

func (f *fixture) take(what string, args []string) {
	switch what {
	case "cpus":
		f.cpus = f.list(args[0])
		f.write(path.Join(cpuDir, "online"), args[0])
		f.cores()
	case "threads":
		f.threads = f.number(args[0])
		f.cores()
	case "package":
		for _, cpu := range f.list(args[1]) {
			f.write(fmt.Sprintf("%s/cpu%d/topology/physical_package_id", cpuDir, cpu), args[0])
			f.write(fmt.Sprintf("%s/cpu%d/topology/package_cpus_list", cpuDir, cpu), args[1])
		}
	case "node":
		f.write(path.Join(nodeDir, "node"+args[0], "cpulist"), f.list(args[1]).String())
		f.online = f.online.union(f.list(args[0]))
	case "allowed":
		f.write(statusFile, "Name:\tx\nCpus_allowed_list:\t"+args[0]+"\nMems_allowed_list:\t"+args[1])
	case "gpu":
		f.gpu(args[0], args[1], strings.Replace(args[2], "none", "", 1), args[3], args[4:])
	case "nic":
		f.nic(args[0], args[1], args[2], len(args) > 3)
	case "env":
		name, value, _ := strings.Cut(args[0], "=")
		f.env[name] = value
	case "file":
		f.write(args[0], args[1])
	default:
		f.t.Fatalf("no line begins with %s", what)
	}
}

func (f *fixture) list(text string) IDSet {
	set, err := ParseIDSet(strings.Replace(text, "none", "", 1))
	if err != nil {
		f.t.Fatal(err)
	}
	return set
}

func (f *fixture) number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		f.t.Fatal(err)
	}
	return n
}

func (f *fixture) write(name, text string) {
	name = filepath.Join(f.root, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		f.t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text+"\n"), 0o644); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) link(name, to string) {
	relative, err := filepath.Rel(filepath.Dir(name), to)
	if err == nil {
		err = os.MkdirAll(filepath.Join(f.root, filepath.Dir(name)), 0o755)
	}
	if err == nil {
		err = os.Symlink(relative, filepath.Join(f.root, name))
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) cores() {
	for _, cpu := range f.cpus {
		siblings := IDSet{cpu}
		if f.threads > 0 {
			siblings = IDSet{cpu % f.threads, cpu%f.threads + f.threads}
		}
		f.write(fmt.Sprintf("%s/cpu%d/topology/core_cpus_list", cpuDir, cpu), siblings.String())
	}
}

func (f *fixture) device(way, numa, cpus string) (bus string) {
	at := "sys/devices/" + way
	f.write(at+"/numa_node", numa)
	f.write(at+"/local_cpulist", cpus)
	f.link("sys/bus/pci/devices/"+path.Base(way), at)
	return path.Base(way)
}

func reading[T any](value T) gpu.Reading[T] { return gpu.Reading[T]{Value: &value} }

func (f *fixture) gpu(uuid, numa, cpus, way string, instances []string) {
	g := gpu.GPU{Index: len(f.facts.GPUs), Handle: gpu.Success, UUID: reading(uuid),
		Bus: reading(f.device(way, numa, cpus)), Name: reading("X")}
	if len(instances) > 0 {
		g.MIG = reading(gpu.ModeState{Current: true})
	}
	for _, instance := range instances {
		g.MIGInstances = append(g.MIGInstances, gpu.MIGInstance{UUID: instance})
	}
	f.facts.GPUs = append(f.facts.GPUs, g)
}

func (f *fixture) nic(name, numa, way string, down bool) {
	f.device(way, numa, "")
	at := "sys/devices/" + way + "/infiniband/" + name
	state := "4: ACTIVE"
	if down {
		state = "1: DOWN"
	}
	f.write(at+"/ports/1/state", state)
	f.link("sys/class/infiniband/"+name, at)
}
