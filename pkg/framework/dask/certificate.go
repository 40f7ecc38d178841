package dask

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"path/filepath"
	"time"

	"github.com/bringupd/bringupd/pkg/framework"
)

const (
	certificateFile = "dask.pem"
	tlsVariables    = "DASK_DISTRIBUTED__COMM__TLS__" // what their names begin with
	// authorityVariable tells where the certificate is that all are trusted by.
	authorityVariable = tlsVariables + "CA_FILE"
	// certificateName is whom the certificate is for. Dask compares no names: who
	// has the key is one of the run's.
	certificateName = "bringupd-dask"
)

// Credentials returns the certificate of the run with its key, in one file, and the
// variables by which Dask's scheduler, workers and clients find it; nothing with
// --dask-tls=off.
func (d Cluster) Credentials(node framework.Node, secret []byte) (framework.Credentials, error) {
	if !d.guarded() {
		return framework.Credentials{}, nil
	}
	text, err := certificate(secret)
	if err != nil {
		return framework.Credentials{}, fmt.Errorf("cannot make the certificate of this run: %v", err)
	}
	env := make(map[string]string)
	for _, part := range []string{"CA_FILE", "SCHEDULER__CERT", "SCHEDULER__KEY", "WORKER__CERT", "WORKER__KEY", "CLIENT__CERT", "CLIENT__KEY"} {
		env[tlsVariables+part] = filepath.Join(node.TempDir, certificateFile)
	}
	return framework.Credentials{Files: map[string][]byte{certificateFile: text}, Env: env}, nil
}

// Strangers tells nothing: Dask lets nobody in without a certificate if it was given
// one, and with --dask-tls=off it was asked to.
func (Cluster) Strangers(context.Context, framework.Node, framework.Endpoint, func(string)) {}

// certificate makes a key of the secret and a certificate for it, which is its own
// authority: who trusts this one alone lets in nobody but who knows the secret.
// Every node makes the same: nothing in it is drawn, and no clock is asked.
func certificate(secret []byte) ([]byte, error) {
	key, err := keyOf(secret)
	if err != nil {
		return nil, err
	}
	name := certificateName
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Unix(0, 0).UTC(), NotAfter: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC), // RFC 5280: it has no end
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	// Without a source of chance the signature is that of RFC 6979.
	der, err := x509.CreateCertificate(nil, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return append(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...), nil
}

// keyOf derives a key of P-256, which every OpenSSL takes, from the secret. One in
// 2^32 numbers is none of the curve's; then the next is taken.
func keyOf(secret []byte) (key *ecdsa.PrivateKey, err error) {
	for try := range byte(8) {
		mac := hmac.New(sha256.New, secret)
		mac.Write(append([]byte("bringupd dask tls "), try))
		if key, err = ecdsa.ParseRawPrivateKey(elliptic.P256(), mac.Sum(nil)); err == nil {
			return key, nil
		}
	}
	return nil, err
}

// tlsConfig is how a scheduler is spoken to that has this certificate, and asks for
// it.
func tlsConfig(text []byte) (*tls.Config, error) {
	pair, err := tls.X509KeyPair(text, text)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return nil, errors.New("it has none")
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots, ServerName: certificateName, MinVersion: tls.VersionTLS12}, nil
}
