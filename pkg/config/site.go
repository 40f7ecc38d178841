package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/bringupd/bringupd/internal/files"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/signal"
)

// SitePath is the path of the site's file: an administrator's defaults for all jobs on a machine.
const SitePath = "/etc/bringupd.yaml"

const maxSiteBytes = 1 << 20

// siteKeys are the settings that the site's file can give: those that describe the machines and how
// they are run. All others are about the program of one job, or about one user.
var siteKeys = []string{
	"active-check", "check", "clean", "driver-grace", "framework-auth", "framework-port", "gpu-check",
	"interface", "join-timeout", "lifeline", "log-dir", "log-format", "max-requeues", "metrics-dir",
	"on-end", "peer-timeout", "pmix", "start-timeout", "temp-dir",
}

// siteValues are the values of a setting in the site's file. Those of a repeatable one come before
// the user's.
type siteValues struct {
	line   string // file:line; empty if there are none
	values []string
}

// OfferSite offers the values in the site's file at path, unless it is missing or no setting can
// use one. Only root may be able to change it, because commands in it run as the user. In a user
// namespace, root is an unknown user. Each node has its own file, and reports what is wrong there.
func (all List) OfferSite(path string) error {
	if !slices.ContainsFunc(all, (*Setting).takesSite) {
		return nil
	}
	read := func(_, path string) ([]byte, error) {
		text, err := files.ReadTrusted(path, maxSiteBytes, 0, signal.OverflowUser("/"))
		if err != nil {
			err = fmt.Errorf("cannot use %s: %w", path, err)
		}
		return text, err
	}
	_, err := readConfig(SourceSite, path, read, all, nil)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return NodeUsageErrorf("%v", err)
	}
	return nil
}

// takesSite reports whether a value of the site would count.
func (s *Setting) takesSite() bool {
	return slices.Contains(siteKeys, s.Name) &&
		(s.Source < SourceSite || s.IsRepeatable && !s.dropsSite())
}

// dropsSite reports whether the first value of a repeatable setting is empty, which drops those of
// the site.
func (s *Setting) dropsSite() bool {
	return s.IsRepeatable && slices.Contains(siteKeys, s.Name) &&
		len(s.RawValues) > 0 && s.RawValues[0] == ""
}

// offerSiteValue offers the value of a key in the site's file, unless it is not for this subcommand
// or job.
func (all List) offerSiteValue(at, key string, node *yaml.Node) error {
	if !slices.Contains(siteKeys, key) {
		return UsageErrorf("cannot use %s: %s is not for a site%s; the keys are %s", at, key,
			SuggestNearest("", key, siteKeys), strings.Join(siteKeys, ", "))
	}
	s := all.FindSetting(key)
	if s == nil || !s.takesSite() {
		return nil
	}
	values, err := s.fileValues(at, node)
	isGiven := func(name, value string) bool {
		other := all.FindSetting(name)
		return other != nil && slices.Equal(other.RawValues, []string{value})
	}
	if err != nil || values == nil ||
		key == "gpu-check" && values[0] != "off" && isGiven("gpus-per-node", "0") ||
		key == "framework-auth" && values[0] == framework.AuthOwn && isGiven("framework", "dask") {
		return err
	}
	if s.Placeholder == "DIR" {
		isUnset := false
		values[0] = os.Expand(values[0], func(name string) string {
			isUnset = isUnset || os.Getenv(name) == ""
			return os.Getenv(name)
		})
		if isUnset { // for example SLURM_JOB_ID outside of jobs
			return nil
		}
	}
	s.site = siteValues{at, values}
	s.OfferValues(SourceSite, at)
	return nil
}
