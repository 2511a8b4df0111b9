package handlers

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"sluis/gate"
	"sluis/views"
	"sluis/web"
)

// link is path with the integration and the parameters, names and values in
// turn. An empty value is left out.
func link(integration, path string, kv ...string) string {
	q := url.Values{}
	if integration != "" {
		q.Set(views.IntegrationParam, integration)
	}
	for i := 0; i+1 < len(kv); i += 2 {
		if kv[i+1] != "" {
			q.Set(kv[i], kv[i+1])
		}
	}
	if len(q) == 0 {
		return path
	}
	return path + "?" + q.Encode()
}

// segment is a name as one segment of a path. An empty one, which a path cannot
// hold, is written "-", as are the two that browsers resolve away.
func segment(name string) string {
	switch name {
	case "":
		return "-"
	case ".", "..":
		return strings.ReplaceAll(name, ".", "%252E")
	}
	return url.PathEscape(name)
}

// param is the parameter of the path that segment wrote.
func param(c *web.Context, name string) (string, error) {
	value := c.Param(name)
	if c.Request().URL.RawPath != "" {
		unescaped, err := url.PathUnescape(value)
		if err != nil {
			return "", web.NotFound(err)
		}
		value = unescaped
	}
	switch value {
	case "-":
		return "", nil
	case "%2E", "%2E%2E":
		return strings.ReplaceAll(value, "%2E", "."), nil
	}
	return value, nil
}

// idParam is the numeric parameter id of the path.
func idParam(c *web.Context) (int64, error) {
	id, err := strconv.ParseInt(c.Param("id"), 10, 64)
	if err != nil || id < 1 {
		return 0, web.NotFound(fmt.Errorf("id %q", c.Param("id")))
	}
	return id, nil
}

// number is a whole number of the URL or a form; 0 when it is absent.
func number(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, &web.Error{Status: http.StatusBadRequest, MessageID: "error.bad_request", Err: fmt.Errorf("number %q", text)}
	}
	return n, nil
}

func itoa(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

// person is the signed-in person as the one who acts.
func person(c *web.Context) gate.Actor { return gate.Person(c.User.Name) }

func itemPath(id int64) string     { return "/quarantine/" + strconv.FormatInt(id, 10) }
func mutationPath(id int64) string { return "/mutations/" + strconv.FormatInt(id, 10) }
func pairPath(id int64) string     { return "/pairs/" + strconv.FormatInt(id, 10) }
func rollbackPath(id int64) string { return "/rollbacks/" + strconv.FormatInt(id, 10) }

func eventPath(account, event string) string {
	return "/events/" + segment(account) + "/" + segment(event)
}

func dropPath(account, event string) string {
	return "/drops/" + segment(account) + "/" + segment(event)
}

func entityPath(typ, id string) string { return "/history/" + segment(typ) + "/" + segment(id) }

// objectPath leads to the page of an object of the audit record, "" when it has
// none.
func objectPath(object string) string {
	prefix, rest, ok := strings.Cut(object, "-")
	if id, err := strconv.ParseInt(rest, 10, 64); ok && err == nil && id > 0 {
		switch prefix {
		case "M":
			return mutationPath(id)
		case "Q":
			return itemPath(id)
		case "P":
			return pairPath(id)
		case "R":
			return rollbackPath(id)
		}
	}
	if strings.HasPrefix(object, "S-") {
		if i := strings.LastIndexByte(object, '-'); i > 1 {
			if seq, err := strconv.ParseInt(object[i+1:], 10, 64); err == nil {
				return link(object[2:i], "/snapshots/"+strconv.FormatInt(seq, 10))
			}
		}
		return ""
	}
	if typ, id, ok := strings.Cut(object, "/"); ok && typ != "user" && typ != "" && id != "" {
		return entityPath(typ, id)
	}
	return ""
}
