package monitor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/bringupd/bringupd/pkg/pause"
	"github.com/bringupd/bringupd/pkg/process"
)

// dcgmPort is where nv-hostengine listens unless it is told otherwise: DCGM_HE_PORT_NUMBER in dcgm_structs.h of NVIDIA's
// DCGM 4.6.0. Its socket in /tmp (-d) is not tried: anybody may make that. What dcgmi prints is of dcgmi/Health.cpp and
// dcgmi/DcgmiOutput.cpp there; no real one has been asked.
const dcgmPort = 5555

const (
	killLag    = 200 * time.Millisecond // for dcgmi to be gone once it is killed
	mostStdout = 1 << 20                // bytes that dcgmi may print
)

// askDCGM asks for what the health watches have seen that somebody has set in the host engine, of the group of all GPUs,
// which has the number 0. Without watches dcgmi says so and exits with an error: none is set by us. dcgmi is taken from
// the place that NVIDIA's packages have for it, where only root can put one, and gets nothing of our environment.
func askDCGM(ctx context.Context, dcgmi string) (answer, error) {
	if _, err := os.Stat(dcgmi); errors.Is(err, fs.ErrNotExist) {
		return answer{}, fmt.Errorf("cannot ask DCGM's host engine: there is no %s", dcgmi)
	}
	out, errs := &process.Beginning{Most: mostStdout}, &process.Beginning{Most: mostStdout}
	_, err := pause.Bounded(ctx, killLag, func() (struct{}, error) {
		return struct{}{}, process.Command{
			Argv: []string{dcgmi, "health", "--check", "--json", "--group", "0", "--host", "127.0.0.1"},
			Env:  []string{"PATH=/usr/bin:/bin", "LC_ALL=C"}, Stdout: out, Stderr: errs,
		}.Run(ctx)
	})
	if err != nil {
		said := strings.TrimPrefix(cmp.Or(out.String(), errs.String(), err.Error()), "Error: ")
		return answer{}, fmt.Errorf("cannot tell by DCGM: %s", said)
	}
	return readDCGM([]byte(out.String()))
}

// box is what dcgmi has under one name: a DcgmiOutputBoxer.
type box struct {
	Value    string         `json:"value"`
	Overflow []string       `json:"overflow"` // lines of one text
	Children map[string]box `json:"children"`
}

const overall = "Overall Health"

// readDCGM reads what dcgmi has printed: below the overall health a box for each kind of entity, and in it one for each
// of these, with the errors of its systems.
func readDCGM(printed []byte) (answer, error) {
	var report struct {
		Body map[string]box `json:"body"`
	}
	if err := json.Unmarshal(printed, &report); err != nil {
		return answer{}, fmt.Errorf("cannot read what dcgmi says of DCGM's health watches: %v", err)
	}
	health := report.Body[overall].Value
	var told answer
	for _, verdict := range []string{"Failure", "Warning"} {
		for _, kind := range slices.Sorted(maps.Keys(report.Body)) {
			for _, entity := range slices.Sorted(maps.Keys(report.Body[kind].Children)) {
				systems := report.Body[kind].Children[entity].Children["Errors"].Children
				for _, system := range slices.Sorted(maps.Keys(systems)) {
					if b := systems[system]; b.Value == verdict {
						told.woes = append(told.woes, incident(kind+" "+entity, system, b))
					}
				}
			}
		}
	}
	switch {
	case health == "Healthy" || len(told.woes) > 0:
		told.well = "its health watches have nothing to tell"
	case health == "":
		return answer{}, errors.New("cannot read what dcgmi says of DCGM's health watches: it tells of no overall health")
	default:
		told.woes = []woe{incident("all GPUs", "overall health", box{Value: health})}
	}
	return told, nil
}

// incident is what the watch of one system has seen. The number is DCGM's own, which is mostly that of NVML.
func incident(entity, system string, b box) woe {
	said := fmt.Sprintf("%s, %s: %s", entity, system, strings.ToLower(b.Value))
	if text := strings.Join(b.Overflow, " "); text != "" {
		said += ": " + text
	}
	return woe{said, "see dcgmi health --check on the node, and test it: dcgmi diag -r 1"}
}
