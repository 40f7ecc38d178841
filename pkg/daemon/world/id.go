package world

import (
	"crypto/sha256"
	"fmt"

	"github.com/bringupd/bringupd/pkg/ranks/pmi"
)

// ID identifies a world of a run.
type ID struct {
	Name    string // for messages: the instance of a role, or empty if the run has no roles
	Key     string // identifies the world in [rendezvous.Worlds]
	JobName string // for MPI
}

// RunID returns the identity of the world of a run without roles. nonce is that of the run.
func RunID(run, nonce string) ID { return ID{JobName: jobName(run, nonce)} }

// GenerationID returns the identity of the world of a generation of an instance of a role. name is
// that of the instance, and number its number among those of all roles.
func GenerationID(run, nonce, name string, number, generation int) ID {
	key := GenerationKey(number, generation)
	return ID{Name: name, Key: key, JobName: jobName(run+"-"+name, nonce+" "+key)}
}

// GenerationKey returns the key of the world of a generation of an instance.
func GenerationKey(number, generation int) string { return fmt.Sprintf("%d.%d", number, generation) }

// ParseGenerationKey returns the parts of a key. ok is false if it is not that of a generation.
func ParseGenerationKey(key string) (number, generation int, ok bool) {
	_, err := fmt.Sscanf(key, "%d.%d", &number, &generation)
	return number, generation, err == nil && key == GenerationKey(number, generation)
}

// jobName returns the name of a world for MPI. The name is a secret, and unique: MPICH derives names
// of shared memory from it, and trusts the contents that it finds there, even those of a killed job.
func jobName(run, nonce string) string {
	sum := sha256.Sum256([]byte("the name of a job for MPI " + nonce))
	return pmi.NewJobName("bringupd-"+run, [24]byte(sum[:]))
}

func (id ID) socketName() string { return "meet" + id.Key }
