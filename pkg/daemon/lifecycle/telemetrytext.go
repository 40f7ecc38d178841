package lifecycle

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/pkg/signal/record"
)

// metricsText builds metrics in the text format of Prometheus. Samples have no timestamps, because a
// textfile collector rejects them. A family without samples is left out.
type metricsText struct {
	buffer  bytes.Buffer
	common  string // formatted labels of every sample
	family  string
	heading string // the family's comment lines; empty after its first sample
}

// startFamily begins a family of samples, which follow.
func (t *metricsText) startFamily(name, kind, help string) {
	t.family = name
	t.heading = fmt.Sprintf("# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

// addSample adds a sample to the family, with additional labels.
func (t *metricsText) addSample(value float64, labels ...string) {
	all := t.common
	if len(labels) > 0 {
		all += "," + formatLabels(labels...)
	}
	t.addSeries(t.family+"{"+all+"}", value)
}

// addSeries adds the sample of a series, given as its name with all its labels, to the family.
func (t *metricsText) addSeries(series string, value float64) {
	t.buffer.WriteString(t.heading)
	t.heading = ""
	fmt.Fprintf(&t.buffer, "%s %s\n", series, strconv.FormatFloat(value, 'g', -1, 64))
}

var labelEscaper = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)

// formatLabels formats labels, given as alternating names and values.
func formatLabels(labels ...string) string {
	var parts []string
	for i := 0; i+1 < len(labels); i += 2 {
		parts = append(parts, labels[i]+`="`+labelEscaper.Replace(strings.ToValidUTF8(labels[i+1], "\uFFFD"))+`"`)
	}
	return strings.Join(parts, ",")
}

// addProgress adds the progress of the job, if there is any.
func (t *metricsText) addProgress(p *record.Progress) {
	if p == nil || p.Reports == 0 {
		return
	}
	add := func(name, help string, value float64, labels ...string) {
		t.startFamily(name, "gauge", help)
		t.addSample(value, labels...)
	}
	add("bringupd_step", "Newest step of the program in this attempt.", p.Step)
	add("bringupd_step_max", "Maximum step of all attempts.", p.MaxStep)
	add("bringupd_steps_per_second", "Rate of the newest steps.", p.Rate)
	add("bringupd_goodput_ratio", "Part of the time in which the step advanced beyond its maximum before.", p.Goodput)
	lost := 0.0
	for _, l := range p.Lost {
		lost += l.Steps
	}
	add("bringupd_lost_steps", "Steps repeated after restarts.", lost)
	if p.Slowest != nil {
		labels := []string{"world_rank", strconv.Itoa(p.Slowest.Rank), "node", strconv.Itoa(p.Slowest.NodeIndex)}
		if p.Slowest.World != "" {
			labels = append(labels, "instance", p.Slowest.World)
		}
		add("bringupd_slowest_step", "Step of the slowest rank.", p.Slowest.Step, labels...)
		add("bringupd_median_step", "Median step of all ranks or nodes.", p.Slowest.Median)
	}
}
