package check

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/bringupd/bringupd/pkg/prose"
)

// Figure is what was measured of a device, for it to be compared with its like: more is better.
type Figure struct {
	ID     string  `json:"id"`              // of the check that compares it: active.gpu_copy
	What   string  `json:"what"`            // was measured: "to the GPU"
	Other  string  `json:"other,omitempty"` // a device that took part, for people
	Device Device  `json:"device"`
	Kind   string  `json:"kind"` // model of the device: only the same are alike
	Value  float64 `json:"value"`
	Unit   string  `json:"unit"` // GB/s
}

// String is the figure for people: "54.2 GB/s to the GPU".
func (f Figure) String() string {
	text := fmt.Sprintf("%.3g %s", f.Value, f.Unit)
	if f.What != "" {
		text += " " + f.What
	}
	if f.Other != "" {
		text += " (" + f.Other + ")"
	}
	return text
}

// slowPart is the part of the median below which a figure is told of. Who knows the model asks for more: Azure's node
// checks fail an H100 below 52 GB/s to or from the host, of the 55 or so that PCIe 5.0 gives (conf/nd96isr_h100_v5.conf
// of Azure/azurehpc-health-checks). Who compares what ran asks for less: NVIDIA's Resiliency Extension takes 75 % of the
// best (Report.identify_stragglers), DLRover half of the median (get_straggler of its rendezvous manager). The median is
// a milder measure than the best, and the runs are short: hence between the two. It is ours, and not proven on hardware.
const slowPart = 0.8

// like are figures that may be compared.
type like struct{ id, what, kind string }

func (f Figure) like() like { return like{f.ID, f.What, f.Kind} }

// JudgeFigures sets the figures of some nodes side by side, each with the median of its like, and returns what is to be
// told of each check: the devices that lag, or that none does. What has no like is only told.
func JudgeFigures(groups []Group) (findings []Finding) {
	medians, count := medians(groups)
	for _, id := range figureIDs(groups) {
		s := Sheet{Each: Finding{ID: id, Source: "measured"}}
		var all []Figure
		devices, compared := 0, false
		var ranks []int
		for _, g := range groups {
			for _, own := range byDevice(g.Report.Figures, id) {
				all, ranks = append(all, own...), append(ranks, g.Ranks...)
				devices++
				var lags []string
				for _, f := range own {
					of := f.like()
					compared = compared || count[of] > 1
					if part := f.Value / medians[of]; part < slowPart {
						lags = append(lags, fmt.Sprintf("%s: %.0f %% of %.3g, the median of %d like it", f, 100*part, medians[of], count[of]))
					}
				}
				s.lag(g, own[0].Device, lags)
			}
		}
		if len(s.Found) == 0 {
			slices.Sort(ranks)
			s.Pass(span(all, devices, compared))
			s.Found[0].Ranks = slices.Compact(ranks)
		}
		findings = append(findings, s.Found...)
	}
	return findings
}

// mostLags is how many figures of a device are named.
const mostLags = 2

// lag tells of what lags of a device, if something does.
func (s *Sheet) lag(g Group, device Device, lags []string) {
	if len(lags) == 0 {
		return
	}
	f := s.Warn(Node, prose.List(lags, mostLags, "; "), fmt.Sprintf("at least %.0f %% of the median", 100*slowPart),
		"see what slows it down (nvidia-smi -q -d PERFORMANCE), its NVLinks (nvidia-smi nvlink -s), and where it sits (nvidia-smi topo -m): "+
			"one that sits elsewhere than most may be well")
	f.Device, f.Ranks, f.Strict = &device, g.Ranks, true
}

// span says what all figures were, from the least to the most.
func span(all []Figure, devices int, compared bool) string {
	byValue := func(a, b Figure) int { return cmp.Compare(a.Value, b.Value) }
	least, most := slices.MinFunc(all, byValue), slices.MaxFunc(all, byValue)
	from, to := fmt.Sprintf("%.3g", least.Value), fmt.Sprintf("%.3g", most.Value)
	if from != to {
		to = from + " to " + to
	}
	text := fmt.Sprintf("%d %s: %s %s", devices, prose.Noun(devices, "GPU"), to, most.Unit)
	if !compared {
		text += "; there is no other of its like to compare it with"
	}
	return text
}

// medians returns the middle value of all that are alike, and how many there are.
func medians(groups []Group) (median map[like]float64, count map[like]int) {
	values := make(map[like][]float64)
	for _, g := range groups {
		for _, f := range g.Report.Figures {
			values[f.like()] = append(values[f.like()], f.Value)
		}
	}
	median, count = make(map[like]float64), make(map[like]int)
	for of, all := range values {
		slices.Sort(all)
		n := len(all)
		median[of], count[of] = (all[(n-1)/2]+all[n/2])/2, n
	}
	return median, count
}

// figureIDs returns the checks that have figures, in the order in which they come.
func figureIDs(groups []Group) (ids []string) {
	for _, g := range groups {
		for _, f := range g.Report.Figures {
			if !slices.Contains(ids, f.ID) {
				ids = append(ids, f.ID)
			}
		}
	}
	return ids
}

// byDevice returns the figures of a check, those of each device together.
func byDevice(all []Figure, id string) (devices [][]Figure) {
	at := make(map[Device]int)
	for _, f := range all {
		if f.ID != id {
			continue
		}
		i, known := at[f.Device]
		if !known {
			i = len(devices)
			at[f.Device] = i
			devices = append(devices, nil)
		}
		devices[i] = append(devices[i], f)
	}
	return devices
}
