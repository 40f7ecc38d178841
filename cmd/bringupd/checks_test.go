package main

import (
	"reflect"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/config"
)

func TestCheckConfig(t *testing.T) {
	o := newOptions()
	all := o.daemonSettings()
	for name, values := range map[string][]string{
		"gpu-check": {"strict"}, "check": {"gpu.*=warn", "gpu.busy=off"}, "active-check": {"a b", "c"}, "start-timeout": {"10s"},
	} {
		all.FindSetting(name).OfferValues(config.SourceFlag, "", values...)
	}
	if _, err := all.ResolveAll(func(string) (string, bool) { return "", false }, nil); err != nil {
		t.Fatal(err)
	}
	got := o.checkConfig()
	want := check.Config{
		Policy: check.Policy{
			Mode:  check.ModeStrict,
			Rules: []check.Rule{{Pattern: "gpu.*", Effect: check.EffectWarn}, {Pattern: "gpu.busy", Effect: check.EffectOff}},
		},
		ActiveCommands: []string{"a b", "c"}, ActiveTimeout: 10 * time.Second, Timeout: 10 * time.Second,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

func TestCheckDefaults(t *testing.T) {
	got := newOptions().checkConfig()
	want := check.Config{Policy: check.Policy{Mode: check.ModeAuto}, ActiveTimeout: 10 * time.Minute, Timeout: 3 * time.Minute}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
}
