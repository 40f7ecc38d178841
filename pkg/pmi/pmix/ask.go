package pmix

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/bringupd/bringupd/pkg/pmi"
)

// firstRead is PMIX_PERSIST_FIRST_READ: what was published is gone once it was looked up.
const firstRead = "1"

// isOwn tells whether a key is PMIx's own: a directive, not something to publish.
func isOwn(key string) bool { return strings.HasPrefix(key, "pmix.") }

// heeded are what may come with a spawn, and is passed on or makes no difference here.
var heeded = []string{"pmix.timeout", "pmix.host", "pmix.wdir", "pmix.spawned", "pmix.parent", "pmix.requestor"}

// readSpawn reads what is to be spawned, and what was said for all of it. Its error is NotSupported where something is required that is
// not known here.
func readSpawn(r *reader) (s pmi.Spawn, all told, err error) {
	s.By, all = r.proc(), r.infos()
	for range r.count() {
		program := r.text()
		c := pmi.Command{Argv: r.texts(), Env: r.texts(), Dir: r.text(), Ranks: int(r.number()), Info: make(map[string]string)}
		if len(c.Argv) == 0 {
			c.Argv = []string{program}
		}
		c.Argv[0] = program
		for _, i := range slices.Concat(all, r.infos()) {
			if i.required && !slices.Contains(heeded, i.key) {
				err = fmt.Errorf("cannot heed %s in a spawn: %w", i.key, pmi.NotSupported)
			}
			c.Info[strings.TrimPrefix(i.key, "pmix.")] = i.value
		}
		if dir := c.Info["wdir"]; dir != "" {
			c.Dir = dir
		}
		s.Commands = append(s.Commands, c)
	}
	return s, all, err
}

// query answers what can be known here: which jobs there are, and how large they are.
func (s *Server) query(r *reader) func(context.Context, *frame) error {
	by := r.proc()
	var found []info
	unknown := ""
	for range r.count() {
		keys, with := r.texts(), r.infos()
		for _, key := range keys {
			if i, known := s.lookAt(key, by, with); known {
				found = append(found, i)
			} else {
				unknown = key
			}
		}
	}
	return func(_ context.Context, f *frame) error {
		if len(found) == 0 {
			return fmt.Errorf("cannot tell %s: %w", unknown, pmi.NotSupported)
		}
		f.infos(found)
		return nil
	}
}

// lookAt is the answer to one question.
func (s *Server) lookAt(key string, by pmi.Proc, with told) (info, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch key {
	case "pmix.qry.ns":
		return info{key, typeString, strings.Join(slices.Sorted(maps.Keys(s.jobs)), ",")}, true
	case "pmix.qry.psetnum": // of sessions: there are none but MPI's own
		return info{key, typeUint32, 0}, true
	case "pmix.qry.psets":
		return info{key, typeString, ""}, true
	}
	name := by.Job
	if other, told := with.of("pmix.nspace"); told {
		name = other
	}
	job := s.jobs[name]
	if job == nil {
		return info{}, false
	}
	switch key {
	case "pmix.job.size":
		return info{key, typeUint32, len(job.Nodes)}, true
	case "pmix.univ.size", "pmix.max.size":
		return info{key, typeUint32, job.Universe}, true
	case "pmix.num.nodes":
		return info{key, typeUint32, len(slices.Compact(slices.Sorted(slices.Values(job.Nodes))))}, true
	}
	return info{}, false
}
