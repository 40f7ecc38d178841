package main

import (
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/config/setting"
)

func TestCheckConfig(t *testing.T) {
	policy := file(t, "xid.yaml", "")
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	o := newOptions()
	all := o.daemonSettings()
	for name, values := range map[string][]string{
		"gpu-check": {"strict"}, "check": {"gpu.*=warn", "gpu.busy=off"}, "active-check": {"a b", "c"}, "start-timeout": {"10s"},
		"xid-policy": {policy}, "nvml": {"lib/libnvidia-ml.so.1"},
	} {
		all.FindSetting(name).OfferValues(setting.SourceFlag, "", values...)
	}
	if _, err := all.ResolveAll(func(string) (string, bool) { return "", false }, nil); err != nil {
		t.Fatal(err)
	}
	got, err := o.checkConfig()
	want := check.Config{
		Policy: check.Policy{
			Mode:  check.ModeStrict,
			Rules: []check.Rule{{Pattern: "gpu.*", Effect: check.EffectWarn}, {Pattern: "gpu.busy", Effect: check.EffectOff}},
		},
		ActiveCommands: []string{"a b", "c"}, ActiveTimeout: 10 * time.Second, Timeout: 10 * time.Second,
		XidPolicy: filepath.Join(here, "xid.yaml"), NVML: filepath.Join(here, "lib/libnvidia-ml.so.1"),
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v\nwant %+v", got, err, want)
	}
	o.checks.NVML = "libnvidia-ml.so.1"
	if got, err = o.checkConfig(); err != nil || got.NVML != "libnvidia-ml.so.1" {
		t.Errorf("a name for the linker became %q, %v", got.NVML, err)
	}
}

func TestCheckDefaults(t *testing.T) {
	got, err := newOptions().checkConfig()
	want := check.Config{Policy: check.Policy{Mode: check.ModeAuto}, ActiveTimeout: 10 * time.Minute, Timeout: 3 * time.Minute}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
}
