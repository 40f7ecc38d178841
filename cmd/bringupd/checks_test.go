package main

import (
	"reflect"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/config"
)

func TestCheckConfig(t *testing.T) {
	for _, tc := range []struct {
		name   string
		values map[string][]string
		want   check.Config
	}{
		{"the defaults", nil, check.Config{
			Policy: check.Policy{Mode: check.ModeAuto}, ActiveTimeout: 10 * time.Minute, Timeout: 3 * time.Minute,
		}},
		{"all settings", map[string][]string{
			"gpu-check": {"strict"}, "check": {"gpu.*=warn", "gpu.busy=off"},
			"active-check": {"a b", "c"}, "start-timeout": {"10s"},
		}, check.Config{
			Policy: check.Policy{
				Mode: check.ModeStrict,
				Rules: []check.Rule{{Pattern: "gpu.*", Effect: check.EffectWarn},
					{Pattern: "gpu.busy", Effect: check.EffectOff}},
			},
			ActiveCommands: []string{"a b", "c"}, ActiveTimeout: 10 * time.Second, Timeout: 10 * time.Second,
		}},
	} {
		o := newOptions()
		all := o.daemonSettings()
		for name, values := range tc.values {
			all.FindSetting(name).OfferValues(config.SourceFlag, "", values...)
		}
		if _, err := all.ResolveAll(func(string) (string, bool) { return "", false }, nil); err != nil {
			t.Fatal(err)
		}
		if got := o.checkConfig(); !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s: got %+v\nwant %+v", tc.name, got, tc.want)
		}
	}
}
