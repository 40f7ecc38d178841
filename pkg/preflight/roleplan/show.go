package roleplan

import (
	"errors"
	"fmt"

	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/roles/rolefile"
)

// Request is what a user wants to know of a file of roles.
type Request struct {
	Path         string
	Counts, GPUs []int // nodes of each component, and GPUs of each of these; nil: unknown
	// Identify returns the identity of this process in its launch.
	Identify func() (launcher.Identity, error)
	Env      launcher.Environment
}

// errNoJob means that the nodes are neither given nor known.
var errNoJob = errors.New("cannot place the roles: this is no job: give the nodes, for example --nodes=8 --gpus-per-node=8")

// FormatScript returns the job script for the roles of the file.
func (q Request) FormatScript(file rolefile.File) (string, error) {
	return FormatScript(file, Batch{Path: q.Path, Counts: q.Counts, GPUs: q.GPUs})
}

// FormatTable returns the placement of the roles of the file: on the given nodes, or on those of this
// launch or job. It returns nothing on all nodes of a launch but the first one.
func (q Request) FormatTable(file rolefile.File) (text string, err error) {
	nodes := AssumeNodes(q.Counts, q.GPUs)
	if nodes == nil {
		var id *launcher.Identity
		switch found, err := q.Identify(); {
		case err == nil && found.NodeIndex > 0:
			return "", nil
		case err == nil:
			id = &found
		default:
			if launch, wrong := errors.AsType[*launcher.LaunchError](err); !wrong || !launch.InShell {
				return "", err
			}
		}
		if nodes, err = DiscoverNodes(q.Env, id, q.GPUs); err != nil {
			return "", err
		}
	}
	if len(nodes) == 0 {
		return "", errNoJob
	}
	preview, err := NewPreview(file, nodes)
	if err != nil {
		return "", fmt.Errorf("%w%s", err, hintGPUs(nodes))
	}
	return preview.FormatTable(), nil
}
