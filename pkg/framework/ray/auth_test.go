package ray

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bringupd/bringupd/pkg/framework"
)

func TestRayDaemonEnv(t *testing.T) {
	environ := []string{
		"PATH=/bin", "HOME=/home/u", "CUDA_VISIBLE_DEVICES=0,1", "OMP_NUM_THREADS=4", "SLURM_JOB_ID=17",
		"RAY_ADDRESS=other:6379", "RAY_health_check_period_ms=10000", "RAY_AUTH_MODE=disabled",
	}
	kept := []string{
		"PATH=/bin", "HOME=/home/u", "CUDA_VISIBLE_DEVICES=0,1", "OMP_NUM_THREADS=4", "SLURM_JOB_ID=17",
		"RAY_health_check_period_ms=10000",
	}
	const drain = "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S"
	tests := []struct {
		name string
		add  []string
		more map[string]string
		want []string
	}{
		{"as it is", nil, nil, append(kept[:6:6], "RAY_AUTH_MODE=disabled", drain+"=0")},
		{"the head's address is not for them", nil, map[string]string{"RAY_ADDRESS": "h:6379"},
			append(kept[:6:6], "RAY_AUTH_MODE=disabled", drain+"=0")},
		{"what the head says wins", nil, map[string]string{"RAY_AUTH_MODE": "token"},
			append(kept[:6:6], "RAY_AUTH_MODE=token", drain+"=0")},
		{"what the user says wins", []string{drain + "=7"}, nil,
			append(kept[:6:6], "RAY_AUTH_MODE=disabled", drain+"=7")},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			got := framework.ServiceEnviron(append(slices.Clip(environ), tc.add...), daemonSettings,
				tc.more, staleVariables)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestRayToken(t *testing.T) {
	home, other := "HOME="+t.TempDir(), filepath.Join(t.TempDir(), "token")
	for path, text := range map[string]string{filepath.Join(home[5:], ".ray",
		"auth_token"): "home\n", other: " other "} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700),
			os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct {
		name    string
		environ []string
		want    string
	}{
		{"nothing", nil, ""},
		{"a home without", []string{"HOME=" + t.TempDir()}, ""},
		{"in the home", []string{home}, "home"},
		{"in another file", []string{home, "RAY_AUTH_TOKEN_PATH=" + other}, "other"},
		{"in a file that is missing", []string{home, "RAY_AUTH_TOKEN_PATH=" + other + ".none"}, ""},
		{"in a file that can't be read", []string{"RAY_AUTH_TOKEN_PATH=" + filepath.Dir(other)}, ""},
		{"in the environment", []string{home, "RAY_AUTH_TOKEN=env"}, "env"},
		{"switched off", []string{home, "RAY_AUTH_TOKEN=env", "RAY_AUTH_MODE=disabled"}, ""},
		{"switched on", []string{"RAY_AUTH_TOKEN=env", "RAY_AUTH_MODE=Token"}, "env"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			if got := findAuthToken(tc.environ); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// TestRayOpen verifies the warning about a cluster that does not require the configured token.
// There is no warning if no token is configured.
func TestRayOpen(t *testing.T) {
	for _, tc := range []struct {
		name         string
		asked, given string // the token that the GCS requires, and the head's token
		open         bool
	}{
		{"it asks for the token", "0123", "0123", false},
		{"it is too old to ask", "", "0123", true},
		{"nobody wants a token", "", "", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			fake := recordedGCS(t, "alive")
			fake.token = tc.asked
			address := fake.serve(t)
			node := testNode(t, 0)
			if tc.given != "" {
				node.Environ = append(node.Environ, "RAY_AUTH_MODE=token", "RAY_AUTH_TOKEN="+tc.given)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			said := ""
			Cluster{}.WarnIfOpen(ctx, node, framework.Endpoint{Address: address},
				func(sentence string) { said += sentence })
			if open := strings.HasPrefix(said,
				"anyone who can connect to Ray at "+address); open != tc.open || !open && said != "" {
				t.Errorf("it says %q", said)
			}
		})
	}
}
