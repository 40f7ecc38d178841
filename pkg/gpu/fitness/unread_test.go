package fitness

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/gpu"
)

// asks lists the readings of a GPU that a check needs, by field name.
var asks = map[string][]string{
	"gpu.recovery": {"Recovery"}, "gpu.remap": {"Remapped"}, "gpu.ecc_unc": {"DRAM", "SRAM"},
	"gpu.retired": {"Retired"}, "gpu.fabric": {"Fabric"}, "gpu.c2c": {"C2C"},
	"gpu.mig": {"MIG"}, "gpu.compute_mode": {"ComputeMode"}, "gpu.busy": {"Processes", "Memory"},
}

// needs returns the readings that a check needs of this GPU.
func needs(id string, g gpu.GPU) []string {
	switch {
	case id == "gpu.busy" && g.MIG.OrZero().Current:
		return nil // its instances are queried instead
	case id == "gpu.busy" && g.Numa.Value != nil:
		return []string{"Processes"} // the memory is the kernel's
	}
	return asks[id]
}

// TestUnread removes one reading after the other and verifies that the checks that need it do not
// pass.
func TestUnread(t *testing.T) {
	for _, file := range []string{"h100", "v100", "gb200"} {
		usual := EvaluateFacts(load(t, file), Expectation{Count: 8})
		for id := range asks {
			if !slices.ContainsFunc(usual, func(f check.Finding) bool {
				return f.ID == id &&
					f.Verdict == check.Pass
			}) {
				continue // skipped on this model
			}
			for _, field := range needs(id, load(t, file).GPUs[0]) {
				for _, why := range []gpu.NVMLReturn{"", gpu.NotSupported, gpu.FunctionNotFound,
					"TIMEOUT", gpu.UnknownError, gpu.NoPermission, gpu.GPUIsLost} {
					for _, all := range []bool{false, true} {
						f := load(t, file)
						for i := range f.GPUs {
							if all || i == 3 {
								take(&f.GPUs[i], field, why)
							}
						}
						wantUnread(t, id, field, why, EvaluateFacts(f, Expectation{Count: 8}))
					}
				}
			}
		}
	}
}

// take removes the reading in that field.
func take(g *gpu.GPU, field string, why gpu.NVMLReturn) {
	reading := reflect.ValueOf(g).Elem().FieldByName(field)
	reading.SetZero()
	reading.FieldByName("Reason").SetString(string(why))
}

func wantUnread(t *testing.T, id, field string, why gpu.NVMLReturn, findings []check.Finding) {
	t.Helper()
	want := check.Skip
	if !why.IsUnavailable() && why != gpu.GPUIsLost && (id != "gpu.busy" || why != gpu.NoPermission) {
		want = check.Unknown
	}
	found := false
	for _, f := range findings {
		if f.ID != id {
			continue
		}
		found = found || f.Verdict == want
		if f.Verdict != want && f.Verdict != check.Skip {
			t.Errorf("%s is %s where %s is %q: %s", id, f.Verdict, field, why, f.Observed)
		}
	}
	if !found {
		t.Errorf("%s is not %s where %s is %q", id, want, field, why)
	}
}

// TestUnreadLinks does the same for NVLinks and their remote ends.
func TestUnreadLinks(t *testing.T) {
	for _, why := range []gpu.NVMLReturn{"", gpu.NotSupported, gpu.FunctionNotFound, "TIMEOUT", gpu.UnknownError} {
		f := load(t, "h100")
		f.GPUs[5].Links[17].Active = unread[bool](why)
		wantUnread(t, "gpu.nvlink", "a link", why, EvaluateFacts(f, Expectation{Count: 8}))
		f = load(t, "h100")
		f.Pairs[3].Status = unread[int](why)
		wantUnread(t, "gpu.nvlink", "a pair", why, EvaluateFacts(f, Expectation{Count: 8}))
	}
}

// TestUnreadInstance does the same for the MIG instances of a GPU.
func TestUnreadInstance(t *testing.T) {
	for _, why := range []gpu.NVMLReturn{"", gpu.NotSupported, "TIMEOUT", gpu.NoPermission} {
		for _, change := range []func(*gpu.MIGInstance){
			func(m *gpu.MIGInstance) { m.Processes = unread[[]gpu.Process](why) },
			func(m *gpu.MIGInstance) { m.Memory = unread[gpu.Memory](why) },
		} {
			f := load(t, "a100-mig")
			change(&f.GPUs[1].MIGInstances[1])
			wantUnread(t, "gpu.busy", "an instance", why, EvaluateFacts(f, Expectation{Count: 9}))
		}
	}
}

// FuzzEvaluate verifies for any facts that the findings are complete and reproducible, and that a
// check passes only if all readings that it needs exist.
func FuzzEvaluate(f *testing.F) {
	for _, name := range fixtures(f) {
		text, err := json.Marshal(load(f, name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text, 8, "0,1,2,3,4,5,6,7", true)
		f.Add(text, -1, "GPU-5d1e0a02,MIG-8a1b0000", false)
	}
	f.Add([]byte(`{"init":"SUCCESS","count":{"value":1},"gpus":[{"index":-1,"handle":"SUCCESS","links":[{}],`+
		`"fabric":{"value":{"state":3,"status":"SUCCESS","mask":4294967295}}},{}],"pairs":[{}]}`), 0, "-1", false)
	f.Fuzz(func(t *testing.T, text []byte, count int, list string, strict bool) {
		var facts gpu.Facts
		if json.Unmarshal(text, &facts) != nil || len(facts.GPUs) > 32 || len(facts.Pairs) > 1024 {
			return
		}
		want, err := ParseExpectation(count, "--gpus-per-node", []string{"CUDA_VISIBLE_DEVICES=" + list})
		if err != nil {
			want = Expectation{Count: count}
		}
		want.Mode = check.ModeAuto
		if strict {
			want.Mode = check.ModeStrict
		}
		findings := EvaluateFacts(facts, want)
		wantComplete(t, findings)
		if again := EvaluateFacts(facts, want); !reflect.DeepEqual(findings, again) {
			t.Errorf("two answers:\n%+v\n%+v", findings, again)
		}
		for _, trait := range Attributes(facts, want) {
			if trait.ID == "" || trait.Value == "" {
				t.Errorf("an empty trait: %+v", trait)
			}
		}
		chosen := selectGPUs(facts, want).gpus
		for _, finding := range findings {
			if finding.Verdict == check.Pass && finding.ID != "gpu.nvml" {
				wantRead(t, finding.ID, chosen)
			}
		}
	})
}

// wantRead checks that all readings that a check needs exist.
func wantRead(t *testing.T, id string, gpus []gpu.GPU) {
	t.Helper()
	for _, g := range gpus {
		if g.Handle != gpu.Success {
			t.Errorf("%s passes, and GPU %d does not answer", id, g.Index)
		}
		for _, field := range needs(id, g) {
			if reflect.ValueOf(g).FieldByName(field).FieldByName("Value").IsNil() {
				t.Errorf("%s passes, and %s of GPU %d was not read", id, field, g.Index)
			}
		}
		if id == "gpu.nvlink" && slices.ContainsFunc(g.Links,
			func(l gpu.NVLink) bool { return l.Active.Value == nil }) {
			t.Errorf("%s passes, and a link of GPU %d was not read", id, g.Index)
		}
	}
}

// TestLost verifies that a GPU that is lost during the queries is detected by any reading.
func TestLost(t *testing.T) {
	for _, field := range reflect.VisibleFields(reflect.TypeFor[gpu.GPU]()) {
		if field.Anonymous || field.Type.Kind() != reflect.Struct {
			continue
		}
		f := load(t, "h100")
		take(&f.GPUs[5], field.Name, gpu.GPUIsLost)
		if got := summary(EvaluateFacts(f, Expectation{Count: 8})); got != "gpu.count 5 FAIL" {
			t.Errorf("%s: %q", field.Name, got)
		}
	}
	f := load(t, "h100")
	f.GPUs[5].Links[0].Active = unread[bool](gpu.ResetRequired)
	if got := summary(EvaluateFacts(f, Expectation{Count: 8})); got != "gpu.count 5 FAIL" {
		t.Errorf("a link: %q", got)
	}
}
