package supervisor

import (
	"fmt"
	"slices"
	"strings"

	"proctor/audit"
)

// wellKnown are destinations that code is often refused, and what to do instead.
var wellKnown = []struct {
	names  []string // these and everything below them
	remedy string
}{
	{
		[]string{
			"pypi.org", "pythonhosted.org", "pypi.python.org", "conda.anaconda.org", "repo.anaconda.com", "registry.npmjs.org", "registry.yarnpkg.com",
			"deb.debian.org", "security.debian.org", "archive.ubuntu.com", "security.ubuntu.com", "crates.io", "proxy.golang.org", "sum.golang.org",
			"rubygems.org", "repo.maven.apache.org", "repo1.maven.org", "plugins.gradle.org", "packagist.org", "cran.r-project.org", "dl-cdn.alpinelinux.org",
		},
		"packages come with the image: see `proctor images list` for what each has, and choose one with --image",
	},
	{
		[]string{"huggingface.co", "hf.co", "cdn-lfs.huggingface.co", "ollama.ai", "ollama.com", "download.pytorch.org", "tfhub.dev", "kaggle.com", "modelscope.cn"},
		"models and data sets are not fetched by a run: have the file passed in with --input",
	},
	{
		[]string{"sentry.io", "segment.io", "api.mixpanel.com", "google-analytics.com", "datadoghq.com", "telemetry.nextjs.org", "posthog.com", "honeycomb.io", "applicationinsights.azure.com"},
		"this is telemetry, which the work does not need: turn it off in the library's settings",
	},
	{
		[]string{"github.com", "gitlab.com", "githubusercontent.com", "bitbucket.org", "codeload.github.com"},
		"have the files that are needed passed in with --input, or the host granted by the operator",
	},
	{
		[]string{"dns.google", "cloudflare-dns.com", "one.one.one.one", "dns.quad9.net", "doh.opendns.com", "dns.nextdns.io", "mozilla.cloudflare-dns.com"},
		"use the run's own resolver, which answers for every name that is granted",
	},
	{
		[]string{"metadata.google.internal", "metadata.azure.com", "instance-data.ec2.internal"},
		"a run has no identity in the cloud: have a credential granted by the operator, which the gateway adds",
	},
}

// remedyFor is what to do instead of reaching a destination.
func remedyFor(d destination) string {
	name := strings.ToLower(string(d.name))
	for _, known := range wellKnown {
		if slices.ContainsFunc(known.names, func(n string) bool { return name == n || strings.HasSuffix(name, "."+n) }) {
			return known.remedy
		}
	}
	if name == "" && d.address.IsLinkLocalUnicast() {
		return "a run has no identity in the cloud: have a credential granted by the operator, which the gateway adds"
	}
	if limit, _, ok := strings.Cut(d.rule, " limit of "); ok {
		return fmt.Sprintf("use less of it, or have the operator raise limits.%s of the profile's egress", limit)
	}
	return ""
}

// remedyForAll is what to do instead of reaching all of these.
func remedyForAll(blocked []audit.Destination) string {
	for _, d := range blocked {
		if d.Remedy != "" {
			return d.Remedy
		}
	}
	return ""
}
