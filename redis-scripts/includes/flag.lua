-- The version of a stored flag rule, or nil where the text is no rule. It stands at the head of what we write; only
-- what somebody wrote by hand is decoded, since a rule may be long.
local function flag_version(stored)
  local version = tonumber(string.match(stored, '^{"version":(%d+)[,}]'))
  if not version then
    local decoded, rule = pcall(cjson.decode, stored)
    version = decoded and type(rule) == 'table' and rule.version
  end
  -- Beyond 10^15 a Lua number no longer counts in ones.
  if type(version) ~= 'number' or version < 1 or version > 1e15 or version % 1 ~= 0 then
    return nil
  end
  return version
end

-- Adds to the audit: `old` and `new` in full up to `longest` bytes, else their version and length; '' for none. Gives
-- why it could not, '' where it could: the switch must not hang on its audit.
local function flag_audit(audit_key, kept, longest, at, who, old, new, why)
  local function shown(rule)
    if #rule <= longest then
      return rule
    end
    return string.format('{"version":%.0f,"omittedBytes":%.0f}', flag_version(rule) or 0, #rule)
  end
  local added = redis.pcall('XADD', audit_key, 'MAXLEN', kept, '*',
    'who', who, 'at', at, 'old', shown(old), 'new', shown(new), 'why', why)
  return type(added) == 'table' and added.err or ''
end

local function flag_now()
  local time = redis.call('TIME')
  return string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
end
