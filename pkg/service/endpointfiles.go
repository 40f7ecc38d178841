package service

import (
	"os"
	"path/filepath"
	"strings"
	"sync"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/roles"
)

// EndpointFiles are the files of a node with the endpoints of each role that are ready, one a line. Its
// methods are safe for concurrent use.
type EndpointFiles struct {
	dir string // empty: there are no files
	log *zap.Logger

	known     sync.Mutex
	ready     map[int]bool // instances that are ready on all nodes; guarded by known
	withdrawn map[int]bool // those of this node that do not serve nevertheless; guarded by known

	writing sync.Mutex
	texts   map[string]string // contents of the files, by role; guarded by writing
}

// NewEndpointFiles returns the files in a directory, in which they are empty; without a directory, there
// are none.
func NewEndpointFiles(dir string, log *zap.Logger) *EndpointFiles {
	return &EndpointFiles{dir: dir, log: log, withdrawn: make(map[int]bool), texts: make(map[string]string)}
}

// SetReady makes a list of instances the one of those that are ready, by which [EndpointFiles.Write] writes.
func (e *EndpointFiles) SetReady(instances []int) {
	ready := make(map[int]bool, len(instances))
	for _, number := range instances {
		ready[number] = true
	}
	e.known.Lock()
	defer e.known.Unlock()
	e.ready = ready
}

// SetServing records whether an instance of this node serves, whatever the list of those that are ready
// says, and reports whether that is a change.
func (e *EndpointFiles) SetServing(instance int, serves bool) (isChange bool) {
	e.known.Lock()
	defer e.known.Unlock()
	isChange = e.withdrawn[instance] == serves
	e.withdrawn[instance] = !serves
	return isChange
}

// Write writes the files that have changed.
func (e *EndpointFiles) Write(plan *roles.Plan) {
	if e.dir == "" {
		return
	}
	e.writing.Lock()
	defer e.writing.Unlock()
	for i := range plan.Roles {
		role := &plan.Roles[i]
		text := e.format(plan, role)
		if text == e.texts[role.Name] {
			continue
		}
		file := filepath.Join(e.dir, role.Name)
		// A reader sees the file before or after the change.
		err := os.WriteFile(file+".new", []byte(text), 0o600)
		if err == nil {
			err = os.Rename(file+".new", file)
		}
		if err != nil {
			e.log.Warn("cannot write the endpoints of a role", zap.String("role", role.Name), zap.Error(err))
			continue
		}
		e.texts[role.Name] = text
	}
}

// format returns the endpoints of a role that serve.
func (e *EndpointFiles) format(plan *roles.Plan, role *roles.RolePlan) string {
	var lines strings.Builder
	e.known.Lock()
	defer e.known.Unlock()
	for _, endpoint := range plan.Endpoints(role) {
		if number := role.Instances[endpoint.Instance].Number; e.ready[number] && !e.withdrawn[number] {
			lines.WriteString(endpoint.HostPort() + "\n")
		}
	}
	return lines.String()
}
