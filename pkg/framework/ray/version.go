package ray

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/bringupd/bringupd/pkg/process"
)

// versionTimeout bounds the time for reading the version of the head's Ray.
const versionTimeout = 500 * time.Millisecond

// versionLines explains why a worker's ray start has failed if the head has another version of Ray,
// which Ray itself reports only if that version sends tokens. It returns nothing once there is a
// session, because ray start compares the versions first.
func (l readinessCheck) versionLines(program string, env []string) []string {
	if _, err := os.Lstat(filepath.Join(l.tempDir, "session_latest")); !errors.Is(err, os.ErrNotExist) {
		return nil
	}
	path, own := installedVersion(program, env)
	if own == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), versionTimeout)
	defer cancel()
	heads := ""
	err := withGCSClient(l.gcsAddress, l.token, func(client *gcsClient) (err error) {
		heads, err = client.rayVersion(ctx)
		return err
	})
	if err != nil || heads == own {
		return nil
	}
	return []string{fmt.Sprintf("%s has Ray %s (%s), and the head, at %s, has Ray %s: use one version on all nodes",
		l.ownNode.Host, own, path, l.gcsAddress, heads)}
}

// installedVersion returns the path of a ray program, and the version of Ray with which it was
// installed. The version is empty if it is not known, for example because the program is a script
// that starts another one.
func installedVersion(program string, env []string) (path, version string) {
	path, err := process.ResolveProgram(program, env)
	if err != nil {
		return program, ""
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return path, ""
	}
	const pattern = "lib*/python*/*-packages/ray-*.dist-info"
	for _, at := range []string{path, real} {
		found, _ := filepath.Glob(filepath.Join(filepath.Dir(at), "..", pattern))
		versions := make(map[string]bool)
		for _, dir := range found {
			version = strings.TrimSuffix(strings.TrimPrefix(filepath.Base(dir), "ray-"), ".dist-info")
			versions[version] = true
		}
		if len(versions) == 1 {
			return path, version
		}
	}
	return path, ""
}

// rayVersion returns the version of Ray that the head has recorded.
func (c *gcsClient) rayVersion(ctx context.Context) (string, error) {
	request := &InternalKVGetRequest{Namespace: []byte("cluster"), Key: []byte("CLUSTER_METADATA")}
	return callAndParse(ctx, c, "cannot get the version of Ray from Ray's GCS at %s", kvGetMethod,
		request, parseVersion)
}

// parseVersion returns the version in the cluster's metadata.
func parseVersion(b []byte) (string, error) {
	var reply InternalKVGetReply
	if err := parseReply(b, &reply); err != nil {
		return "", err
	}
	var metadata struct {
		Version string `json:"ray_version"`
	}
	err := json.Unmarshal(reply.Value, &metadata)
	if err == nil && metadata.Version == "" {
		err = errors.New("it has no version")
	}
	return shortenText(metadata.Version), err
}
